"""Our front before a real vLLM engine, held against that engine's own front.

FASTRENDER_VLLM names its command (vLLM 0.32's CPU build: ../shared/reference/install.sh).
"""

import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from PIL import Image

import fake_engine
from fastrender import Renderer
from fastrender.config import RenderConfig
from fastrender.engine.choose import remote_engine
from fastrender.server.app import Application
from folders import EMBEDDED

COMMAND = os.environ.get("FASTRENDER_VLLM", "")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LENGTH = 4096
START_SECONDS = 280
# What is an engine's own, or differs by intent (docs/deviations.md).
_OWN = {"id", "created", "system_fingerprint", "bytes"}

pytestmark = [
    pytest.mark.skipif(not COMMAND, reason="FASTRENDER_VLLM names no vLLM command"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an engine with the embedded model, its weights random."""
    folder = tmp_path_factory.mktemp("vllm") / "tiny"
    shutil.copytree(EMBEDDED, folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = f"--load-format dummy --enforce-eager --dtype float32 --max-model-len {LENGTH}"
    words += f" --max-num-seqs 4 --enable-scale-out --served-model-name m --port {port}"
    with (folder.parent / "log").open("w+") as log:
        process = subprocess.Popen(
            [COMMAND, "serve", str(folder), "--host", "127.0.0.1", *words.split()],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_for(url, process, pathlib.Path(log.name))
            yield url
        finally:
            # Its own workers too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: pathlib.Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health").status_code == 200:
                return
        assert process.poll() is None, log.read_text()[-4000:]
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-4000:])


@pytest.fixture(scope="module")
def front(vllm: str) -> Iterator[str]:
    config = RenderConfig(served_model_name=("m",), max_model_len=LENGTH, engine=(vllm,))
    application = Application(Renderer.from_config(config), config, engine=remote_engine(config))
    running = fake_engine.serving(application, start=application.start, stop=application.stop)
    with running as url:
        yield url


def picture() -> dict[str, Any]:
    file = io.BytesIO()
    Image.new("RGB", (96, 64), (200, 10, 10)).save(file, "PNG")
    url = "data:image/png;base64," + b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


USER = [{"role": "user", "content": "hi there"}]
LOOK = [{"role": "user", "content": [picture(), {"type": "text", "text": "what?"}]}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BASE = {"model": "m", "temperature": 0, "max_tokens": 12, "return_token_ids": True}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": USER}),
    "chat, long": (CHAT, {"messages": USER, "ignore_eos": True, "max_tokens": 60}),
    "chat, logprobs": (CHAT, {"messages": USER, "logprobs": True, "top_logprobs": 0}),
    "chat, sampled": (CHAT, {"messages": USER, "n": 2, "temperature": 0.8, "seed": 3}),
    "chat, image": (CHAT, {"messages": LOOK}),
    "chat, tools": (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": "none"}),
    "completion": (COMPLETIONS, {"prompt": "Once upon"}),
    "completion, sixteen tokens": (COMPLETIONS, {"prompt": "Once upon", "max_tokens": None}),
    "completions": (COMPLETIONS, {"prompt": ["Once upon", "a time"]}),
    "completion of ids": (COMPLETIONS, {"prompt": [71, 72, 73]}),
    "completion, logprobs": (COMPLETIONS, {"prompt": "Once upon", "logprobs": 0}),
    "echo": (COMPLETIONS, {"prompt": "Once upon", "echo": True, "return_token_ids": False}),
    "echo alone": (
        COMPLETIONS,
        {"prompt": "Once", "echo": True, "max_tokens": 0, "return_token_ids": False},
    ),
    "echo, logprobs": (
        COMPLETIONS,
        {"prompt": "Once upon", "echo": True, "logprobs": 0, "return_token_ids": False},
    ),
    "stop": (COMPLETIONS, {"prompt": "Once upon", "stop": "STOP"}),
    "stop, included": (
        COMPLETIONS,
        {"prompt": "Once upon", "stop": "STOP", "include_stop_str_in_output": True},
    ),
    "refused": (CHAT, {"messages": USER, "temperature": 9}),
}


def told(value: Any) -> Any:
    """An answer without what is nobody's business: absent and null are one."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in _OWN}
        return {key: told(item) for key, item in kept.items() if item is not None}
    if isinstance(value, list):
        return [told(item) for item in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


def joined(text: str) -> Any:
    """What the chunks of a stream come to."""
    parts = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    assert parts.pop() == "[DONE]"
    choices: dict[int, dict[str, Any]] = {}
    usage = []
    for chunk in map(json.loads, parts):
        usage += [told(chunk["usage"])] if chunk.get("usage") else []
        for choice in chunk["choices"]:
            so_far = choices.setdefault(choice["index"], {"text": "", "ids": [], "ends": []})
            so_far["text"] += choice.get("delta", {}).get("content") or choice.get("text") or ""
            so_far["ids"] += choice.get("token_ids") or []
            so_far["ends"] += [choice["finish_reason"]] if choice["finish_reason"] else []
    return choices, usage


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_of_the_engines_own_front(
    vllm: str, front: str, name: str, stream: bool
) -> None:
    path, asked = CASES[name]
    body = {**BASE, **asked}
    if body.get("stop") == "STOP":
        # Of what the model does say.
        whole = httpx.post(vllm + path, json={**body, "stop": None}, timeout=60).json()
        body["stop"] = whole["choices"][0]["text"][4:8]
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    want = httpx.post(vllm + path, json=body, timeout=60)
    got = httpx.post(front + path, json=body, timeout=60)
    assert got.status_code == want.status_code
    if want.status_code != 200:
        error, theirs = got.json()["error"], want.json()["error"]
        assert {**error, "message": ""} == {**theirs, "message": ""}
    elif stream:
        assert joined(got.text) == joined(want.text)
    else:
        assert told(got.json()) == told(want.json())
