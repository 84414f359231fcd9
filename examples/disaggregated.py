"""Render, encode, prefill and decode on servers of their own.

    fastrender serve MODEL --port 8000
    fastrender serve MODEL --port 8001 --engine torch --role encode --enable-scale-out
    fastrender serve MODEL --port 8002 --engine torch --role prefill-decode --enable-scale-out \
        --ec-peers 127.0.0.1
    python examples/disaggregated.py picture.png

The three may be any servers that speak this wire, or one that does everything. Nothing beyond
Python's library is needed.
"""

import argparse
import base64
import json
import mimetypes
import pathlib
import urllib.request
from typing import Any


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """The JSON that a server answers with."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def main() -> None:
    """Ask about one image."""
    parser = argparse.ArgumentParser(description="Ask about an image, one server for each step.")
    parser.add_argument("image", type=pathlib.Path)
    parser.add_argument("--text", default="What is in this image?")
    parser.add_argument("--render", default="http://127.0.0.1:8000")
    parser.add_argument("--encode", default="http://127.0.0.1:8001")
    parser.add_argument("--prefill", default="http://127.0.0.1:8002")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()

    kind = mimetypes.guess_type(options.image)[0] or "image/png"
    data = base64.b64encode(options.image.read_bytes()).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    text = {"type": "text", "text": options.text}

    # 1. The request becomes token ids, and the image what the vision tower takes.
    rendered = post(
        f"{options.render}/v1/chat/completions/render",
        {"messages": [{"role": "user", "content": [image, text]}]},
    )
    token_ids, features = rendered["token_ids"], rendered["features"]
    common = {key: features[key] for key in ("mm_hashes", "mm_placeholders")}

    # 2. The encode worker runs the tower, and says where the embeddings are.
    encoded = post(
        f"{options.encode}/inference/v1/generate",
        {
            "token_ids": token_ids,
            "features": {**common, "kwargs_data": features["kwargs_data"]},
            "sampling_params": {"max_tokens": 1},
        },
    )

    # 3. The prefill worker fetches them, and generates. The pixels never reach it.
    generated = post(
        f"{options.prefill}/inference/v1/generate",
        {
            "token_ids": token_ids,
            "features": {**common, "mm_metadata": features["mm_metadata"]},
            "ec_transfer_params": encoded["ec_transfer_params"],
            "sampling_params": {
                "max_tokens": options.max_tokens,
                "temperature": options.temperature,
            },
        },
    )
    ids = generated["choices"][0]["token_ids"]
    print(json.dumps({"token_ids": ids}))
    print(post(f"{options.render}/detokenize", {"tokens": ids})["prompt"])


if __name__ == "__main__":
    main()
