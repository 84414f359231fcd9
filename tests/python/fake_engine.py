"""Engines for tests: they say what they are told to, and fail as they are told to."""

import asyncio
import contextlib
import dataclasses
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

Fields = dict[str, Any]


@dataclasses.dataclass
class Engine:
    """An engine at `url`; what a test changes here holds from the next request on."""

    url: str = ""
    # The token ids of each choice, by the request.
    says: Callable[[Fields], list[list[int]]] = lambda body: [[71, 72]]
    finish_reason: str | None = "stop"
    # Tokens in a chunk, and seconds before each.
    chunk_tokens: int = 1
    pause: float = 0.0
    # One of: status:N, hang, garbage, no-json, huge, empty; in a stream cut, slow,
    # error-event, no-done.
    fault: str = ""
    healthy: bool = True
    # Parts of answers.
    more: Fields = dataclasses.field(default_factory=dict)
    logprobs: bool = False
    refusal: Fields = dataclasses.field(default_factory=dict)
    requests: list[Fields] = dataclasses.field(default_factory=list)
    headers: list[dict[str, str]] = dataclasses.field(default_factory=list)
    running: int = 0
    left: int = 0
    chunks_sent: int = 0

    async def generate(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        fault, _, detail = self.fault.partition(":")
        if fault == "status":
            return JSONResponse(self.refusal, int(detail), headers={"retry-after": "7"})
        if fault == "hang":
            self.running += 1
            try:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                self.left += 1
            finally:
                self.running -= 1
            return Response()
        if fault in ("garbage", "no-json"):
            kind = "application/json" if fault == "no-json" else "text/html"
            return Response("<html>it works</html>", media_type=kind)
        if fault == "huge":
            return Response(b'{"x":"' + b"x" * 2_000_000 + b'"}', media_type="application/json")
        if body.get("stream"):
            return StreamingResponse(
                self._stream(request, body, fault), media_type="text/event-stream"
            )
        await asyncio.sleep(self.pause)
        return JSONResponse(self._whole(body))

    def _whole(self, body: Fields) -> Fields:
        choices = [
            self._choice(index, ids, self.finish_reason)
            for index, ids in enumerate(self.says(body))
        ]
        if self.fault == "empty":
            choices = []
        return {
            "request_id": f"generate-tokens-{body.get('request_id')}",
            "model": body.get("model"),
            "created": 1,
            "usage": None,
            "prompt_logprobs": None,
            "prompt_token_ids": body["token_ids"] if body.get("return_token_ids") else None,
            "metrics": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "output_mode": "tokens",
            "choices": choices,
            **self.more,
        }

    def _choice(self, index: int, ids: list[int], finish: str | None) -> Fields:
        content = [
            {
                "token_id": token,
                "logprob": -0.5,
                "rank": 1,
                "top_logprobs": [{"token_id": token, "logprob": -0.5, "rank": 1}],
            }
            for token in ids
        ]
        return {
            "index": index,
            "finish_reason": finish,
            "stop_reason": None,
            "token_ids": ids,
            "logprobs": {"content": content} if self.logprobs else None,
        }

    async def _stream(self, request: Request, body: Fields, fault: str) -> AsyncIterator[bytes]:
        self.running += 1
        ended = False
        name = f"generate-tokens-{body.get('request_id')}"
        options = body.get("stream_options") or {}
        try:
            outputs = self.says(body)
            longest = max(map(len, outputs))
            sent = 0
            for start in range(0, longest, self.chunk_tokens):
                if self.pause:
                    await asyncio.sleep(self.pause)
                for index, ids in enumerate(outputs):
                    end = start + self.chunk_tokens
                    part = ids[start:end]
                    if not part:
                        continue
                    sent += len(part)
                    finish = self.finish_reason if end >= len(ids) else None
                    chunk: Fields = {
                        "request_id": name,
                        "usage": None,
                        "output_mode": "tokens",
                        "choices": [self._choice(index, part, finish)],
                    }
                    if body.get("return_token_ids") and start == 0:
                        chunk["prompt_token_ids"] = body["token_ids"]
                    if options.get("continuous_usage_stats"):
                        chunk["usage"] = _usage(body, sent)
                    self.chunks_sent += 1
                    yield _event(chunk)
                if start == 0 and fault == "slow":
                    await asyncio.sleep(5)
                if start == 0 and fault == "cut":
                    raise RuntimeError("the engine is told to break off")
                if start == 0 and fault == "error-event":
                    yield _event({"error": self.refusal})
                    yield b"data: [DONE]\n\n"
                    return
            if fault == "no-done":
                ended = True
                return
            if options.get("include_usage"):
                usage = _usage(body, sent)
                yield _event({"request_id": name, "usage": usage, "choices": []})
            yield b"data: [DONE]\n\n"
            ended = True
        finally:
            self.running -= 1
            if not ended:
                self.left += 1

    async def health(self, request: Request) -> Response:
        return Response(status_code=200 if self.healthy else 503)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/inference/v1/generate", self.generate, methods=["POST"]),
                Route("/health", self.health),
            ]
        )


def _usage(body: Fields, tokens: int) -> Fields:
    prompt = len(body["token_ids"])
    return {"prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens}


def _event(chunk: Fields) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@contextlib.contextmanager
def engine(**attributes: Any) -> Iterator[Engine]:
    """An engine that listens, ended with the block."""
    one = Engine(**attributes)
    with serving(one.app()) as url:
        one.url = url
        yield one


@contextlib.contextmanager
def serving(
    app: ASGIApp, *, start: Callable[[], Any] | None = None, stop: Callable[[], Any] | None = None
) -> Iterator[str]:
    """An app on a port of its own, in a thread of its own; `start` and `stop` run in its loop."""

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            if start is not None:
                await start()
            await super().startup(sockets)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            if stop is not None:
                await stop()

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, lifespan="off", log_level="critical", timeout_graceful_shutdown=2, ws="none"
    )
    server = Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
        assert not thread.is_alive()


@contextlib.contextmanager
def closing(answer: bytes = b"") -> Iterator[Engine]:
    """What takes requests of this route, says `answer`, and closes the connection."""
    one = Engine()
    listener = socket.create_server(("127.0.0.1", 0))
    one.url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    if connection.recv(1 << 16).startswith(b"POST"):
                        one.requests.append({})
                        connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def unused_url() -> str:
    """A base URL where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
