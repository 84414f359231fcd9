"""The generate routes of a real server: gates, streams, clients that leave, a full queue."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI
from starlette.testclient import TestClient

from fastrender.config import RenderConfig
from fastrender.engine.interface import EngineError
from fastrender.server.app import Application
from fastrender.settings import ConfigError
from live import Server, client, serving
from torch_models import (
    TorchEngine,
    body,
    engine,
    generated,
    image_url,
    picture,
    post,
    prompt,
    renderer,
    tokens,
)

TINY = "fastrender/tiny"
GENERATE, ABORT = "/inference/v1/generate", "/inference/v1/abort_requests"
COMMAND = ("-m", "fastrender", "serve")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    flags = ("--engine", "torch", "--enable-scale-out", "--max-num-seqs", "16")
    with serving(*flags, command=COMMAND, OMP_NUM_THREADS="1") as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with client(server) as opened:
        yield opened


def gated(**settings: Any) -> TestClient:
    config = RenderConfig(engine=("torch",), **settings)
    application = Application(renderer(TINY), config, engine=TorchEngine(config, renderer(TINY)))
    return TestClient(application, raise_server_exceptions=False)


def test_scale_out_routes_are_off_until_asked_for() -> None:
    paths = (
        *("/v1/chat/completions/render", "/v1/completions/derender", GENERATE, ABORT),
        "/v1/chat/completions/derender/stream",
    )
    http = gated()
    for path in paths:
        answer = http.post(path, json=body([1]))
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (403, "PermissionDeniedError"), path
    for settings in ({"enable_scale_out": True}, {"tokens_only": True}):
        http = gated(**settings)
        # The engine is not started.
        assert http.post(GENERATE, json=body([1])).status_code == 503
        assert http.post(ABORT, json={"request_ids": []}).status_code == 200
        whole = http.post("/v1/chat/completions", json={"messages": []}).status_code
        assert whole == (404 if "tokens_only" in settings else 400)


def test_settings_that_do_not_go_together_are_refused() -> None:
    for settings in (
        {"engine": ("torch",), "workers": 2},
        {"tokens_only": True},
        {"role": "encode"},
        {"engine": ("torch",), "role": "encode"},
    ):
        with pytest.raises(ConfigError):
            RenderConfig(**settings)


def test_whole_and_streamed_answers_are_the_same(http: httpx.Client) -> None:
    request = body(prompt(9), max_tokens=12)
    whole = tokens(http.post(GENERATE, json=request).json())
    assert whole == generated(TINY, prompt(9), 12)
    streamed, last = [], ""
    with http.stream("POST", GENERATE, json={**request, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: {"):
                streamed += json.loads(line[6:])["choices"][0]["token_ids"]
            last = line or last
    assert (streamed, last) == (whole, "data: [DONE]")


def test_faults_before_a_stream_begins_have_their_status(http: httpx.Client) -> None:
    answer = http.post(GENERATE, json={**body([5_000]), "stream": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 400)
    assert (
        http.post(GENERATE, content=b"{", headers={"content-type": "application/json"}).json()[
            "error"
        ]["type"]
        == "Bad Request"
    )


def test_the_openai_client_talks_with_it(server: Server) -> None:
    openai = OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)
    url = {"type": "image_url", "image_url": {"url": image_url(picture(64, 64))}}
    contents: list[Any] = ["Hello", [url, {"type": "text", "text": "What?"}]]
    for content in contents:
        messages: list[Any] = [{"role": "user", "content": content}]
        common: dict[str, Any] = {"model": TINY, "messages": messages, "max_tokens": 8}
        whole = openai.chat.completions.create(**common, temperature=0)
        assert whole.usage is not None
        assert whole.usage.completion_tokens <= 8
        pieces = openai.chat.completions.create(**common, temperature=0, stream=True)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert text == whole.choices[0].message.content
    openai.close()


def test_aborted_requests_answer_with_what_there_was(http: httpx.Client, server: Server) -> None:
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        request = {**body(prompt(4), max_tokens=30_000), "request_id": "mine"}
        with client(server) as own:
            answers.append(own.post(GENERATE, json=request).json())

    asking = threading.Thread(target=ask)
    asking.start()
    deadline = time.monotonic() + 15
    while asking.is_alive() and time.monotonic() < deadline:
        time.sleep(0.2)
        assert http.post(ABORT, json={"request_ids": ["mine", "other"]}).status_code == 200
    asking.join(5)
    choice = answers[0]["choices"][0]
    assert choice["finish_reason"] == "abort"
    assert len(choice["token_ids"]) < 30_000
    assert http.post(ABORT, json={}).status_code == 400
    assert http.post(ABORT, json={"request_ids": [1]}).status_code == 400


@pytest.mark.timeout(120)
def test_clients_that_leave_stop_costing(http: httpx.Client, server: Server) -> None:
    async def leave(own: httpx.AsyncClient, seed: int) -> None:
        request = {**body(prompt(20, seed), max_tokens=20_000), "stream": True}
        async with own.stream("POST", GENERATE, json=request) as response:
            assert response.status_code == 200
            async for _ in response.aiter_lines():
                return

    async def all_leave() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as own:
            await asyncio.gather(*(leave(own, seed) for seed in range(50)))

    asyncio.run(all_leave())
    # 50 times 20,000 tokens would keep it busy for many minutes.
    started = time.monotonic()
    answer = http.post(GENERATE, json=body(prompt(9), max_tokens=12))
    assert tokens(answer.json()) == generated(TINY, prompt(9), 12)
    assert time.monotonic() - started < 10
    assert http.get("/ping").status_code == 200


def test_a_full_queue_says_when_to_come_back() -> None:
    running = engine(TINY, max_num_seqs=1, engine_queue_limit=1)

    async def run() -> list[Any]:
        requests = [body(prompt(4), max_tokens=40)] * 4
        asked = [post(running, request) for request in requests]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    made = asyncio.run(run())
    assert [isinstance(answer, EngineError) for answer in made] == [False, False, True, True]
    assert (made[2].status, made[2].headers) == (429, ((b"retry-after", b"1"),))
    assert running.stats() == {**running.stats(), "requests": 0, "sequences": 0, "waiting": 0}
    asyncio.run(running.close())


def test_an_engine_that_failed_says_so() -> None:
    running = engine(TINY)
    batch = running._batch
    assert batch is not None

    def broken() -> None:
        raise RuntimeError("out of memory")

    async def run() -> None:
        batch._generate, working = broken, batch._generate  # type: ignore[assignment,method-assign]
        with pytest.raises(EngineError) as caught:
            await post(running, body(prompt(4)))
        assert caught.value.status == 500
        assert "out of memory" not in caught.value.message
        batch._generate = working  # type: ignore[method-assign]
        # A step that failed takes its requests with it, and no others.
        assert tokens(await post(running, body(prompt(4)))) == generated(TINY, prompt(4), 8)
        await running.close()
        with pytest.raises(EngineError):
            await post(running, body(prompt(4)))

    asyncio.run(run())
