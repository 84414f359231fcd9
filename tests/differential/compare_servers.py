"""Send the same random requests to two render servers and print where their answers differ.

    python tests/differential/compare_servers.py http://127.0.0.1:8100 http://127.0.0.1:8200 --count 2000 --seed 1

The first is the reference (vLLM 0.33's renderer), the second ours; both serve the same model folder as `m`. Compared as
the wire's contract has it: status, `type`, `param` and `code` of errors (not their wording), every field of answers but
random ids. Exit status 1 when anything differs.
"""

import argparse
import collections
import json
import sys
import urllib.error
import urllib.request
from typing import Any

from random_requests import Body, comparable, request


def post(url: str, body: Body) -> tuple[int, Any]:
    http_request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(http_request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference")
    parser.add_argument("ours")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=20)
    options = parser.parse_args()
    differing, statuses = 0, collections.Counter[int]()
    for i in range(options.count):
        path, body = request(f"{options.seed}/{i}")
        want_status, want_answer = post(options.reference + path, body)
        got_status, got_answer = post(options.ours + path, body)
        want, got = comparable(want_status, want_answer), comparable(got_status, got_answer)
        statuses[want_status] += 1
        if want == got and json.dumps(want) == json.dumps(got):
            continue
        differing += 1
        if differing <= options.show:
            print(f"#{i} {path} {json.dumps(body, ensure_ascii=False)}")
            print(
                "   want",
                json.dumps(want)[:700],
                json.dumps(want_answer)[:300] if want_status != 200 else "",
            )
            print(
                "   got ",
                json.dumps(got)[:700],
                json.dumps(got_answer)[:300] if got_status != 200 else "",
            )
    print(f"{dict(statuses)}; {options.count - differing} passed, {differing} failed")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
