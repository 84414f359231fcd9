"""Encode, prefill and decode on engines of their own, behind one front."""

import base64
import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from PIL import Image

import fake_engine
from fake_engine import Engine, engine, until
from fastrender import Renderer
from fastrender.config import RenderConfig
from fastrender.engine.choose import remote_engine
from fastrender.server.app import Application

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]
EC = {"ec_items": [{"mm_hash": "x", "peer_host": "10.0.0.1", "peer_port": 1, "size_bytes": 9}]}
KV = {"remote_engine_id": "e", "remote_block_ids": [1, 2], "do_remote_prefill": True}


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


@pytest.fixture
def encode() -> Iterator[Engine]:
    with engine(more={"ec_transfer_params": EC}, says=lambda body: [[1]]) as running:
        yield running


@pytest.fixture
def prefill() -> Iterator[Engine]:
    with engine(more={"kv_transfer_params": KV}) as running:
        yield running


@pytest.fixture
def decode() -> Iterator[Engine]:
    with engine() as running:
        yield running


@contextlib.contextmanager
def front(renderer: Renderer, **settings: Any) -> Iterator[httpx.Client]:
    config = RenderConfig(**settings)
    application = Application(renderer, config, engine=remote_engine(config))
    running = fake_engine.serving(application, start=application.start, stop=application.stop)
    with running as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client
        until(lambda: application.in_flight == 0)


def picture() -> list[dict[str, Any]]:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), (1, 2, 3)).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what?"}]
    return [{"role": "user", "content": parts}]


def said(answer: httpx.Response, *, stream: bool) -> str:
    assert answer.status_code == 200, answer.text
    if not stream:
        content: str = answer.json()["choices"][0]["message"]["content"]
        return content
    parts = [part.removeprefix("data: ") for part in answer.text.split("\n\n") if part]
    assert parts.pop() == "[DONE]"
    choices = [json.loads(part)["choices"][0] for part in parts]
    return "".join(choice["delta"]["content"] or "" for choice in choices)


@pytest.mark.parametrize("stream", [False, True])
def test_media_are_encoded_first(
    renderer: Renderer, encode: Engine, prefill: Engine, stream: bool
) -> None:
    rendered = renderer.render_chat({"messages": picture()})
    features = rendered["features"]
    with front(renderer, encode_engine=[encode.url], prefill_engine=[prefill.url]) as http:
        body = {"messages": picture(), "stream": stream, "max_tokens": 9}
        assert said(http.post(CHAT, json=body), stream=stream) == "hi"
    [asked] = encode.requests
    shared = {key: features[key] for key in ("mm_hashes", "mm_placeholders")}
    assert asked["features"] == {**shared, "kwargs_data": features["kwargs_data"]}
    assert asked["sampling_params"] == {"max_tokens": 1}
    assert asked["token_ids"] == rendered["token_ids"]
    [then] = prefill.requests
    assert then["features"] == {**shared, "mm_metadata": features["mm_metadata"]}
    assert then["ec_transfer_params"] == EC
    assert then["sampling_params"]["max_tokens"] == 9
    assert then["stream"] is stream
    assert then["kv_transfer_params"] is None


def test_text_is_not_encoded(renderer: Renderer, encode: Engine, prefill: Engine) -> None:
    with front(renderer, encode_engine=[encode.url], prefill_engine=[prefill.url]) as http:
        assert said(http.post(CHAT, json={"messages": USER}), stream=False) == "hi"
    assert encode.requests == []
    assert prefill.requests[0]["ec_transfer_params"] is None


@pytest.mark.parametrize("stream", [False, True])
def test_all_three(
    renderer: Renderer, encode: Engine, prefill: Engine, decode: Engine, stream: bool
) -> None:
    urls = {
        "encode_engine": [encode.url],
        "prefill_engine": [prefill.url],
        "decode_engine": [decode.url],
    }
    with front(renderer, **urls) as http:
        body = {"messages": picture(), "stream": stream, "max_tokens": 9, "n": 1, "min_tokens": 3}
        assert said(http.post(CHAT, json=body), stream=stream) == "hi"
    [read] = prefill.requests
    assert read["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
    assert read["sampling_params"]["max_tokens"] == 1
    assert "min_tokens" not in read["sampling_params"]
    assert read["stream"] is False
    assert read["ec_transfer_params"] == EC
    assert "kwargs_data" not in read["features"]
    [generates] = decode.requests
    assert generates["kv_transfer_params"] == KV
    assert generates["sampling_params"]["max_tokens"] == 9
    assert generates["sampling_params"]["min_tokens"] == 3
    assert generates["stream"] is stream
    assert generates["token_ids"] == read["token_ids"]


def test_parameters_of_the_client_go_before_ours(
    renderer: Renderer, encode: Engine, prefill: Engine, decode: Engine
) -> None:
    own = {"ec_items": [{"mm_hash": "mine"}]}
    urls = {"encode_engine": [encode.url], "prefill_engine": [prefill.url]}
    with front(renderer, **urls, decode_engine=[decode.url]) as http:
        body = {
            "messages": picture(),
            "kv_transfer_params": {"mine": 1},
            "ec_transfer_params": own,
        }
        assert said(http.post(CHAT, json=body), stream=False) == "hi"
    assert encode.requests == []
    assert prefill.requests[0]["ec_transfer_params"] == own
    assert prefill.requests[0]["kv_transfer_params"] == {"mine": 1}


def test_who_reads_the_prompt_tells_of_its_logprobs(
    renderer: Renderer, prefill: Engine, decode: Engine
) -> None:
    entry = {"5": {"logprob": -1.0, "rank": 1, "decoded_token": "x"}}
    prefill.more = {"prompt_logprobs": [None, entry]}
    with front(renderer, prefill_engine=[prefill.url], decode_engine=[decode.url]) as http:
        body = {"messages": USER, "prompt_logprobs": 1}
        assert http.post(CHAT, json=body).json()["prompt_logprobs"] == [None, entry]
    assert prefill.requests[0]["sampling_params"]["prompt_logprobs"] == 1
    assert decode.requests[0]["sampling_params"]["prompt_logprobs"] is None


LOST = {"error": {"message": "encode it again", "type": "ConflictError", "code": 409}}


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_encoder_dropped_meanwhile_is_encoded_again(
    renderer: Renderer, encode: Engine, prefill: Engine, stream: bool
) -> None:
    prefill.fault = "status:409"
    prefill.refusal = LOST
    with front(renderer, encode_engine=[encode.url], prefill_engine=[prefill.url]) as http:
        body = {"messages": picture(), "stream": stream}
        answer = http.post(CHAT, json=body)
        # Once, and no more.
        assert (answer.status_code, len(encode.requests)) == (409, 2)
        assert answer.json()["error"]["message"] == "encode it again"

        def works_the_second_time(body: dict[str, Any]) -> list[list[int]]:
            prefill.fault = "status:409" if len(encode.requests) == 3 else ""
            return [[1]]

        encode.says = works_the_second_time
        assert said(http.post(CHAT, json=body), stream=stream) == "hi"
        assert (len(encode.requests), len(prefill.requests)) == (4, 4)


@pytest.mark.parametrize("stream", [False, True])
def test_an_encoder_that_is_none(
    renderer: Renderer, encode: Engine, prefill: Engine, stream: bool
) -> None:
    encode.more = {}
    with front(renderer, encode_engine=[encode.url], prefill_engine=[prefill.url]) as http:
        answer = http.post(CHAT, json={"messages": picture(), "stream": stream})
        assert answer.status_code == 502
        assert "ec_transfer_params" in answer.json()["error"]["message"]
    assert prefill.requests == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["encode", "prefill", "decode"])
def test_a_stage_that_fails_ends_the_request(
    renderer: Renderer, encode: Engine, prefill: Engine, decode: Engine, place: str, stream: bool
) -> None:
    stages = {"encode": encode, "prefill": prefill, "decode": decode}
    stages[place].fault = "status:500"
    urls = {f"{name}_engine": [one.url] for name, one in stages.items()}
    with front(renderer, **urls) as http:
        answer = http.post(CHAT, json={"messages": picture(), "stream": stream})
        assert answer.status_code == 502
        assert http.get("/ping").status_code == 200


def test_a_client_that_leaves_stops_the_stage_that_works(
    renderer: Renderer, encode: Engine, prefill: Engine
) -> None:
    encode.fault = "hang"
    with front(renderer, encode_engine=[encode.url], prefill_engine=[prefill.url]) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post(CHAT, json={"messages": picture()}, timeout=0.5)
        until(lambda: encode.left == 1)
        encode.fault = ""
        prefill.pause = 0.02
        prefill.says = lambda body: [[104] * 5_000]
        body = {"messages": picture(), "stream": True}
        with http.stream("POST", CHAT, json=body) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
        until(lambda: prefill.left == 1)
    assert prefill.running == 0
