import json
import socket
import urllib.parse
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI
from starlette.testclient import TestClient

from fastrender import Renderer
from fastrender.config import RenderConfig
from fastrender.server.app import Application
from live import Server, client, serving

CHAT, COMPLETIONS = "/v1/chat/completions/derender", "/v1/completions/derender"
PARSERS = (
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "hermes",
    "--reasoning-parser",
    "qwen3",
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = 'why</think>Hi <tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(
        enable_auto_tool_choice=True, tool_call_parser="hermes", reasoning_parser="qwen3"
    )


def app_client(renderer: Renderer, **settings: Any) -> TestClient:
    config = RenderConfig(**settings)
    return TestClient(Application(renderer, config), raise_server_exceptions=False)


@pytest.fixture(scope="module")
def http(renderer: Renderer) -> TestClient:
    return app_client(renderer)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*PARSERS, command=("-m", "fastrender", "serve")) as running:
        yield running


def ids_of(http: TestClient | httpx.Client, text: str) -> list[int]:
    answer = http.post("/tokenize", json={"prompt": text, "add_special_tokens": False})
    ids: list[int] = answer.json()["tokens"]
    return ids


def request() -> dict[str, Any]:
    chat = {"messages": [{"role": "user", "content": "q"}], "tools": [TOOL]}
    return {"chat_request": chat, "prompt_token_ids": [1, 2]}


def chunk(ids: list[int], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "token_ids": ids, "finish_reason": finish}
    return {"request_id": "r", "choices": [choice], **more}


def events(text: str) -> list[Any]:
    parts = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]


def joined(chunks: list[Any]) -> dict[str, str]:
    message = {"content": "", "reasoning": "", "arguments": "", "finish_reason": ""}
    for event in chunks:
        for choice in event["choices"]:
            for key in ("content", "reasoning"):
                message[key] += choice["delta"].get(key) or ""
            for call in choice["delta"].get("tool_calls", []):
                message["arguments"] += call["function"]["arguments"] or ""
            message["finish_reason"] += choice["finish_reason"] or ""
    return message


def test_a_stream_of_requests_and_one_connection_say_the_same(http: TestClient) -> None:
    ids = ids_of(http, CALL)
    state = None
    chunks = []
    for i, token in enumerate(ids):
        finish = "stop" if i + 1 == len(ids) else None
        body = {
            **request(),
            "stream": True,
            "generate_chunk": chunk([token], finish),
            "stream_state": state,
        }
        answer = http.post(CHAT, json=body)
        assert answer.status_code == 200, answer.text
        chunks.append(answer.json()["chunk"])
        state = answer.json()["stream_state"]
    lines = [request(), *(chunk([token]) for token in ids[:-1]), chunk(ids[-1:], "stop")]
    ndjson = "\n".join(json.dumps(line) for line in lines)
    one = http.post(
        f"{CHAT}/stream", content=ndjson, headers={"content-type": "application/x-ndjson"}
    )
    assert one.headers["content-type"].startswith("text/event-stream")
    told = events(one.text)
    assert told[-1] == "[DONE]"
    want = {
        "content": "Hi ",
        "reasoning": "why",
        "arguments": '{"a": "x"}',
        "finish_reason": "tool_calls",
    }
    assert joined(chunks) == joined(told[:-1]) == want
    sse = (
        "".join(f": hi\nevent: x\ndata: {json.dumps(line)}\n\n" for line in lines)
        + "data: [DONE]\n\n"
    )
    again = http.post(f"{CHAT}/stream", content=sse, headers={"content-type": "text/event-stream"})
    assert joined(events(again.text)[:-1]) == want


def test_usage_is_told_in_the_end(http: TestClient) -> None:
    ids = ids_of(http, "t</think>Hi")
    asked = request()
    asked["chat_request"]["stream"] = True
    asked["chat_request"]["stream_options"] = {"include_usage": True}
    lines = [asked, chunk(ids, "stop")]
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    for more, want in [
        ([], (2, len(ids))),
        ([{"request_id": "r", "choices": [], "usage": usage}], (5, 7)),
    ]:
        body = "\n".join(json.dumps(line) for line in [*lines, *more])
        answer = http.post(
            f"{CHAT}/stream", content=body, headers={"content-type": "application/x-ndjson"}
        )
        told = events(answer.text)
        assert [event["choices"] for event in told[:-1]].count([]) == 1
        last = told[-2]["usage"]
        assert (last["prompt_tokens"], last["completion_tokens"]) == want


@pytest.mark.parametrize(
    ("content", "status", "param"),
    [
        ("{", 400, "body.1"),
        ("[]", 400, "body"),
        ('{"model": "other"}', 404, "model"),
        ("{}", 400, None),
    ],
)
def test_a_stream_that_cannot_begin_is_refused(
    http: TestClient, content: str, status: int, param: str | None
) -> None:
    answer = http.post(
        f"{CHAT}/stream", content=content, headers={"content-type": "application/x-ndjson"}
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)


def test_what_goes_wrong_later_is_an_event(http: TestClient) -> None:
    lines = [
        json.dumps(request()),
        json.dumps(chunk([5])),
        '{"choices": 5}',
        json.dumps(chunk([6])),
    ]
    answer = http.post(
        f"{CHAT}/stream", content="\n".join(lines), headers={"content-type": "application/x-ndjson"}
    )
    told = events(answer.text)
    assert answer.status_code == 200
    assert (told[1]["error"]["code"], told[2]) == (400, "[DONE]")


def test_an_engine_that_breaks_off_leaves_what_there_was(http: TestClient) -> None:
    lines = [request(), chunk(ids_of(http, "t</think>a <tool"))]
    body = "\n".join(json.dumps(line) for line in lines)
    answer = http.post(
        f"{CHAT}/stream", content=body, headers={"content-type": "application/x-ndjson"}
    )
    message = joined(events(answer.text)[:-1])
    assert (message["content"], message["finish_reason"]) == ("a <tool", "abort")


def test_other_bodies_and_methods_are_refused(http: TestClient, renderer: Renderer) -> None:
    answer = http.post(f"{CHAT}/stream", content="{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert http.get(f"{CHAT}/stream").status_code == 405
    small = app_client(renderer, max_request_bytes=64)
    long = json.dumps({"model": "m" * 100})
    answer = small.post(
        f"{CHAT}/stream", content=long, headers={"content-type": "application/x-ndjson"}
    )
    assert answer.status_code == 413
    none = app_client(renderer, max_streams=0)
    answer = none.post(
        f"{CHAT}/stream", content="{}", headers={"content-type": "application/x-ndjson"}
    )
    assert answer.status_code == 503


def test_bounds_hold_through_http(http: TestClient) -> None:
    many = chunk([1] * 40_000)
    answer = http.post(CHAT, json={**request(), "generate_response": many})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestError")
    state = {"prev_tokens": ["x"] * 2000}
    answer = http.post(
        CHAT,
        json={**request(), "stream": True, "generate_chunk": chunk([1]), "stream_state": state},
    )
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "Bad Request")
    choices = [{"index": i, "token_ids": [1]} for i in range(20_000)]
    answer = http.post(
        COMPLETIONS, json={"generate_responses": [{"request_id": "r", "choices": choices}]}
    )
    assert answer.status_code == 400


def test_routes_are_counted(http: TestClient) -> None:
    http.post(COMPLETIONS, json={"generate_responses": [chunk([5])]})
    text = http.get("/metrics").text
    assert f'handler="{COMPLETIONS}"' in text
    assert f'handler="{CHAT}/stream"' in text
    assert 'route="completions_derender"' in text


def test_the_openai_client_reads_what_comes(server: Server) -> None:
    with client(server) as http:
        ids = ids_of(http, CALL)
        answer = http.post(CHAT, json={**request(), "generate_response": chunk(ids, "stop")}).json()
        from openai.types.chat import ChatCompletion, ChatCompletionChunk

        message = ChatCompletion.model_validate(answer).choices[0].message
        assert message.tool_calls is not None
        assert message.tool_calls[0].type == "function"
        lines = "\n".join(json.dumps(line) for line in [request(), chunk(ids, "stop")])
        stream = http.post(
            f"{CHAT}/stream", content=lines, headers={"content-type": "application/x-ndjson"}
        )
        for event in events(stream.text)[:-1]:
            ChatCompletionChunk.model_validate(event)
    assert OpenAI is not None


def head(server: Server, path: str) -> bytes:
    host = urllib.parse.urlsplit(server.url).netloc
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/x-ndjson",
        "Transfer-Encoding: chunked",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def piece(data: dict[str, Any]) -> bytes:
    line = json.dumps(data).encode() + b"\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


def read_until(connection: socket.socket, text: bytes) -> bytes:
    data = b""
    while text not in data:
        got = connection.recv(65536)
        assert got, data
        data += got
    return data


def connected(server: Server) -> socket.socket:
    parts = urllib.parse.urlsplit(server.url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), 10)


def test_chunks_go_out_while_the_body_comes_in(server: Server) -> None:
    with client(server) as http:
        ids = ids_of(http, "t</think>Hello there")
    with connected(server) as connection:
        connection.sendall(head(server, f"{CHAT}/stream") + piece(request()))
        assert b"200 OK" in read_until(connection, b"\r\n\r\n")
        for i, token in enumerate(ids):
            connection.sendall(piece(chunk([token], "stop" if i + 1 == len(ids) else None)))
            assert b"chat.completion.chunk" in read_until(connection, b"\n\n")
        connection.sendall(b"0\r\n\r\n")
        assert b"[DONE]" in read_until(connection, b"0\r\n\r\n")


def test_a_client_that_goes_away_ends_its_stream(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(head(server, f"{CHAT}/stream") + piece(request()))
        read_until(connection, b"\r\n\r\n")
    with client(server) as http:
        for _ in range(100):
            metrics = http.get("/metrics").text
            in_flight = next(
                line for line in metrics.splitlines() if "in_flight" in line and line[0] != "#"
            )
            if float(in_flight.split()[-1]) <= 1:
                return
    raise AssertionError(in_flight)


def test_silence_ends_a_stream() -> None:
    with (
        serving("--stream-timeout", "0.3", command=("-m", "fastrender", "serve")) as server,
        connected(server) as connection,
    ):
        connection.sendall(head(server, f"{CHAT}/stream") + piece({}))
        told = read_until(connection, b"[DONE]")
        assert b"RequestTimeoutError" in told
