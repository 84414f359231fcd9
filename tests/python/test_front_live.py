"""The front as the command starts it: a process of its own, its flags and its end."""

import concurrent.futures
import json
import signal
from collections.abc import Iterator

import httpx
import pytest
from openai import OpenAI

from fake_engine import Engine, engine, until
from live import client, serving

COMMAND = ("-m", "fastrender", "serve")
CHAT = "/v1/chat/completions"
USER = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def one() -> Iterator[Engine]:
    with engine() as running:
        yield running


def test_the_command_serves_answers(one: Engine) -> None:
    with serving("--engine", one.url, command=COMMAND) as server, client(server) as http:
        openai = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        [model] = openai.models.list()
        stream = openai.chat.completions.create(
            model=model.id, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "hi"
        paths = http.get("/openapi.json").json()["paths"]
        assert CHAT in paths
        assert f"{CHAT}/render" not in paths
        text = http.get("/metrics").text
        assert f'handler="{CHAT}"' in text


def test_several_processes_serve_answers(one: Engine) -> None:
    flags = ("--engine", one.url, "--workers", "2")
    with serving(*flags, command=COMMAND) as server:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            url = server.url + CHAT
            answers = list(pool.map(lambda _: httpx.post(url, json=USER, timeout=20), range(40)))
        assert {answer.status_code for answer in answers} == {200}
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0


@pytest.mark.parametrize(
    ("variable", "status"),
    [
        ({}, 403),
        ({"VLLM_ENABLE_SCALE_OUT_ENDPOINTS": "1"}, 200),
        ({"VLLM_ENABLE_SCALE_OUT_ENDPOINTS": "0"}, 403),
    ],
)
def test_the_variable_of_older_servers_is_honoured(
    one: Engine, variable: dict[str, str], status: int
) -> None:
    with (
        serving("--engine", one.url, command=COMMAND, **variable) as server,
        client(server) as http,
    ):
        assert http.post(f"{CHAT}/render", json=USER).status_code == status
        assert http.post(CHAT, json=USER).status_code == 200


def test_sigterm_lets_a_stream_go_on_to_its_end(one: Engine) -> None:
    one.pause = 0.05
    one.says = lambda body: [[71] * 40]
    with (
        serving("--engine", one.url, command=COMMAND) as server,
        client(server) as http,
        http.stream("POST", CHAT, json={**USER, "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert server.logged("shutting down")
        told = [line.removeprefix("data: ") for line in lines if line]
        assert told[-1] == "[DONE]"
        assert json.loads(told[-2])["choices"][0]["finish_reason"] == "stop"
        assert server.wait() == 0


def test_the_end_of_the_shutdown_timeout_stops_the_engine(one: Engine) -> None:
    one.pause = 0.05
    one.says = lambda body: [[71] * 4_000]
    flags = ("--engine", one.url, "--shutdown-timeout", "0.3")
    with (
        serving(*flags, command=COMMAND) as server,
        client(server) as http,
        http.stream("POST", CHAT, json={**USER, "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 1
        until(lambda: one.left == 1)
