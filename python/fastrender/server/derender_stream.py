"""`POST …/derender/stream`: an engine's chunks in, a client's chunks out, on one connection.

The body is a sequence of JSON objects, a line each or as server-sent events, which may come while
the answer goes out. The first is the request: that of a streamed derender without chunk and state.
The others are the engine's chunks; `[DONE]`, or the end of the body, ends them. The answer is a
stream of server-sent events that ends with `[DONE]`.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from fastrender.config import RenderConfig
from fastrender.errors import RequestError
from fastrender.server.answers import Answer, internal_error, overloaded, refusal
from fastrender.server.bodies import BodyBudget
from fastrender.server.interface import DerenderStream, Renderer
from fastrender.server.render import MOST_SHORT_BYTES
from fastrender.server.work import ClientGoneError, QueueFullError, WorkLane

STREAM_ROUTES = {
    "/v1/chat/completions/derender/stream": "chat_derender",
    "/v1/completions/derender/stream": "completions_derender",
}
_CONTENT_TYPES = (
    *(b"application/x-ndjson", b"application/jsonl", b"application/json-lines"),
    *(b"application/json", b"text/event-stream"),
)
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_DONE = b"[DONE]"

T = TypeVar("T")

logger = logging.getLogger("fastrender.server")


class _BadBodyError(Exception):
    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class DerenderStreamRoute:
    """One streaming route."""

    def __init__(
        self,
        path: str,
        renderer: Renderer,
        config: RenderConfig,
        *,
        lane: WorkLane,
        budget: BodyBudget,
    ) -> None:
        """Serve `path`; lane and budget are shared by all routes."""
        self._path = path
        self._route = STREAM_ROUTES[path]
        self._renderer = renderer
        self._lane = lane
        self._budget = budget
        self._most_bytes = config.max_request_bytes
        self._timeout = config.stream_timeout or None
        self._left = config.max_streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST request."""
        if self._left == 0:
            await overloaded("too many streams are open already").send(send)
            return
        self._left -= 1
        try:
            await self._serve(dict(scope["headers"]), receive, send)
        except ClientGoneError:
            pass
        finally:
            self._left += 1

    async def _serve(self, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if content_type not in _CONTENT_TYPES:
            text = "the content type must be application/x-ndjson or text/event-stream"
            await refusal(400, "Bad Request", text).send(send)
            return
        async with contextlib.aclosing(self._events(receive)) as events:
            await self._open(events, send)

    async def _open(self, events: AsyncGenerator[bytes], send: Send) -> None:
        held = 0
        try:
            opening = await anext(events, b"{}")
            self._budget.take(len(opening))
            held = len(opening)
            make = functools.partial(self._renderer.derender_stream, self._route, opening)
            stream = await self._work(len(opening), make)
        except Exception as error:
            self._budget.give_back(held)
            await self._answer_for(error).send(send)
            return
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._relay(stream, events, send)
        finally:
            self._budget.give_back(held)

    async def _relay(
        self, stream: DerenderStream, events: AsyncGenerator[bytes], send: Send
    ) -> None:
        told_usage = False
        try:
            async for event in events:
                if event == _DONE:
                    break
                chunk = await self._work(len(event), functools.partial(stream.push_chunk, event))
                told_usage |= b'"choices":[]' in chunk
                await _send_event(send, chunk)
            # An engine that breaks off leaves its client with what there was.
            last = await self._work(0, functools.partial(stream.finish, "abort"))
            if last is not None:
                await _send_event(send, last)
            if stream.includes_usage and not told_usage:
                await _send_event(send, stream.usage_chunk())
        except ClientGoneError:
            raise
        except Exception as error:
            await _send_event(send, self._answer_for(error).body)
        await _send_event(send, _DONE)
        await send({"type": "http.response.body", "body": b""})

    def _answer_for(self, error: Exception) -> Answer:
        if isinstance(error, RequestError):
            return Answer(error.status, error.body)
        if isinstance(error, QueueFullError):
            return overloaded("too many requests wait already")
        if isinstance(error, ClientGoneError):
            raise error
        answer = getattr(error, "answer", None)
        if isinstance(answer, Answer):
            return answer
        logger.exception("a stream to %s failed", self._path, exc_info=error)
        return internal_error()

    async def _work(self, size: int, function: Callable[[], T]) -> T:
        """Short work is done here, as for other requests, the rest on a thread."""
        if size <= MOST_SHORT_BYTES:
            return function()
        return await self._lane.run(_never, function)

    async def _events(self, receive: Receive) -> AsyncGenerator[bytes]:
        """The JSON objects of the body, one by one; `[DONE]` as it is."""
        data: list[bytes] = []
        async for line in self._lines(receive):
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif line.startswith((b":", b"event:", b"id:", b"retry:")):
                continue
            elif line:
                yield line
            elif data:
                yield b"\n".join(data)
                data = []
        if data:
            yield b"\n".join(data)

    async def _lines(self, receive: Receive) -> AsyncGenerator[bytes]:
        rest = bytearray()
        # Where no line has ended yet.
        searched = 0
        more = True
        while more:
            try:
                async with asyncio.timeout(self._timeout):
                    message = await receive()
            except TimeoutError:
                text = f"nothing came for {self._timeout:g} seconds"
                raise _BadBodyError(refusal(408, "RequestTimeoutError", text)) from None
            if message["type"] != "http.request":
                raise ClientGoneError("reading")
            more = message.get("more_body", False)
            rest += message.get("body", b"")
            start = 0
            while (end := rest.find(b"\n", max(start, searched))) >= 0:
                yield bytes(rest[start:end]).strip()
                start = end + 1
            del rest[:start]
            searched = len(rest)
            if len(rest) > self._most_bytes:
                text = f"a line is longer than the {self._most_bytes} bytes that are read"
                raise _BadBodyError(refusal(413, "RequestTooLargeError", text))
        if line := bytes(rest).strip():
            yield line


async def _send_event(send: Send, data: bytes | memoryview) -> None:
    body = b"".join((b"data: ", data, b"\n\n"))
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _never() -> dict[str, str]:
    """Stand in for what tells of clients that are gone: here the body's reader does."""
    await asyncio.Event().wait()
    return {}
