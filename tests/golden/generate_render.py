"""Record the answers of vLLM 0.33's render server to random requests on the embedded model.

vllm-render-0.33 python/fastrender/embedded --served-model-name m --port 8100
python tests/golden/generate_render.py http://127.0.0.1:8100 --count 600 > tests/golden/render.json
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "differential"))

from compare_servers import post
from random_requests import comparable, request


def main() -> None:
    """Write the golden file to stdout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference")
    parser.add_argument("--count", type=int, default=600)
    options = parser.parse_args()
    lines = []
    for i in range(options.count):
        seed = f"golden/{i}"
        path, body = request(seed)
        status, answer = post(options.reference + path, body)
        if status < 500:
            case = {"seed": seed, "path": path, "body": body, "want": comparable(status, answer)}
            lines.append(json.dumps(case, ensure_ascii=False, separators=(",", ":")))
    header = {"generator": "tests/golden/generate_render.py", "vllm": "0.33.0"}
    sys.stdout.write(json.dumps(header)[:-1] + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
