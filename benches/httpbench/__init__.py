"""Parts of the HTTP benchmark, which `http_bench.py` puts together."""
