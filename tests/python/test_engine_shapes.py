"""Answers have the shapes of those that a real vLLM 0.32 engine gave (../shared/conformance)."""

import asyncio
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from fastrender.config import RenderConfig
from fastrender.renderer import Renderer
from fastrender.server.app import Application
from folders import ROOT
from torch_models import (
    AutoConfig,
    AutoModelForImageTextToText,
    TorchEngine,
    image_url,
    picture,
    torch,
)

_SHARED = pathlib.Path(os.environ.get("FASTRENDER_SHARED") or ROOT.parent / "shared")
_FILE = _SHARED / "conformance" / "generate_shapes.json"
_MODEL = _SHARED / "assets" / "qwen3-vl"

if not (_FILE.is_file() and _MODEL.is_dir()):
    pytest.skip("../shared is not here (set FASTRENDER_SHARED)", allow_module_level=True)

CASES = {case["name"]: case for case in json.loads(_FILE.read_text())["cases"]}
# What 0.33 has and 0.32 had not, or where we say more than vLLM does.
OTHERWISE = {
    # A mode that came with 0.33.
    "derender": 200,
    "err_derender_stream": 400,
    # There is no engine beside this one that such a request could be for.
    "metadata_with_ec_no_connector": 400,
    # A fault of the client's that vLLM takes for its own.
    "err_bad_msgpack": 400,
}
# The names of the tokens are as random as the tokens.
_ANY = ("created", "request_id", "message", "top_logprobs", "prompt_logprobs", "bytes")


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    model = tmp_path_factory.mktemp("models") / "m"
    model.mkdir()
    for file in _MODEL.iterdir():
        if file.is_file():
            (model / file.name).symlink_to(file)
    config = json.loads((_MODEL / "config.json").read_text())
    text: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "head_dim": 16,
    }
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.2}
    vision: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 1,
        "depth": 2,
    }
    vision |= {"out_hidden_size": 16, "deepstack_visual_indexes": [0]}
    scaling = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]}
    config["text_config"] |= {**text, "rope_scaling": scaling}
    config["vision_config"] |= vision
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(config))
    torch.manual_seed(1)
    made = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(model))
    made.to(torch.float32).save_pretrained(model / "saved")
    (model / "saved" / "model.safetensors").rename(model / "model.safetensors")
    settings = RenderConfig(
        model=str(model),
        served_model_name=("m",),
        max_model_len=4_096,
        engine=("torch",),
        enable_scale_out=True,
    )
    renderer = Renderer.from_config(settings)
    engine = TorchEngine(settings, renderer)
    with TestClient(
        Application(renderer, settings, engine=engine), raise_server_exceptions=False
    ) as client:
        engine.load()
        yield client
        asyncio.run(engine.close())


@pytest.fixture(scope="module")
def features(http: TestClient) -> dict[str, Any]:
    """Those of an image of 64 tokens, as in the cases."""
    url = image_url(picture(256, 256))
    part = {"type": "image_url", "image_url": {"url": url}}
    chat = {"messages": [{"role": "user", "content": [part]}]}
    answer = http.post("/v1/chat/completions/render", json=chat)
    found: dict[str, Any] = answer.json()["features"]
    return found


def filled(case: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    """The case's body, with the payload that its file leaves out."""
    body: dict[str, Any] = json.loads(json.dumps(case["body"]))
    given = body.get("features") or {}
    for name in ("kwargs_data", "mm_metadata"):
        if given.get(name) == "<as rendered>":
            given[name] = json.loads(json.dumps(features[name]))
    if case["name"] == "err_bad_base64":
        given["kwargs_data"] = {"image": ["!!!"]}
    if case["name"] == "err_bad_msgpack":
        given["kwargs_data"] = {"image": ["AAAA"]}
    if case["name"] == "err_modalities":
        given["kwargs_data"] = {"audio": given["kwargs_data"]["image"]}
    return body


def shape(value: Any, key: str = "") -> Any:
    """Keys in order and kinds of values, without what is random."""
    if key in _ANY and value is not None:
        return key
    if isinstance(value, dict):
        return [(name, shape(entry, name)) for name, entry in value.items()]
    if isinstance(value, list):
        return [shape(entry) for entry in value]
    if isinstance(value, bool) or value is None or key in ("finish_reason", "output_mode"):
        return value
    if key in ("type", "param", "code", "status"):
        return value
    if isinstance(value, int | float) and key in ("logprob", "rank"):
        return "number"
    return type(value).__name__


def of_text(text: str) -> list[Any]:
    """A stream's events."""
    events = [event for event in text.split("\n\n") if event]
    assert all(event.startswith("data: ") for event in events)
    found = [event.removeprefix("data: ") for event in events]
    return [event if event == "[DONE]" else shape(json.loads(event)) for event in found]


@pytest.mark.parametrize("name", CASES)
def test_answers_have_the_shapes_of_vllm(
    name: str, http: TestClient, features: dict[str, Any]
) -> None:
    case = CASES[name]
    answer = http.post(case["path"], json=filled(case, features))
    assert answer.status_code == OTHERWISE.get(name, case["status"]), answer.text
    if name in OTHERWISE:
        return
    if isinstance(case["response"], str):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert of_text(answer.text) == of_text(case["response"])
        return
    mine, theirs = answer.json(), case["response"]
    if answer.status_code == 200 and not name.startswith("err"):
        told = theirs["choices"][0]["logprobs"]
        if told is not None:
            entry = mine["choices"][0]["logprobs"]["content"][0]
            assert list(entry) == list(told["content"][0])
            assert list(entry["top_logprobs"][0]) == list(told["content"][0]["top_logprobs"][0])
    if mine.get("prompt_logprobs"):
        entries = [next(iter(entry.values())) for entry in mine["prompt_logprobs"][1:]]
        assert {tuple(entry) for entry in entries} == {("logprob", "rank", "decoded_token")}
    assert shape(mine) == shape(theirs)
