"""The torch engine: transformers' models, in this process, with a batch that never stops.

In: loading, batching, sampling, vision towers, and what travels between encode and prefill workers.
Out: HTTP routes, and the models themselves.
"""
