"""The routes of tokens of an inference server: `/inference/v1/generate` and what goes with it."""

import asyncio
import contextlib
import hmac
import json
import logging
import urllib.parse
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from fastrender.config import RenderConfig
from fastrender.engine.interface import Aborting, Engine, EngineError, Publishing
from fastrender.errors import RequestError
from fastrender.server.answers import Answer, internal_error, overloaded, refusal
from fastrender.server.bodies import BodyBudget, BodyReader, RefusedError
from fastrender.server.metrics import Metrics
from fastrender.server.scale_out import ABORT, EMBEDDINGS, GENERATE
from fastrender.server.work import ClientGoneError, while_connected

# Larger bodies are read on a thread.
_MOST_SHORT_BYTES = 64 << 10
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_PIECE_BYTES = 1 << 20
_MOST_IDS = 65_536
_NO_BODY = (b"content-length", b"0")

logger = logging.getLogger("fastrender.server")


def generate_routes(
    engine: Engine, config: RenderConfig, *, budget: BodyBudget, metrics: Metrics
) -> dict[str, ASGIApp]:
    """The POST routes by path."""
    bodies = BodyReader(config, budget)
    routes: dict[str, ASGIApp] = {
        GENERATE: GenerateRoute(engine, config, bodies=bodies, budget=budget, metrics=metrics)
    }
    if isinstance(engine, Aborting):
        routes[ABORT] = AbortRoute(engine, bodies, budget)
    return routes


def fetch_routes(engine: Engine, config: RenderConfig) -> dict[str, ASGIApp]:
    """The GET routes by path."""
    if isinstance(engine, Publishing) and engine.publishes:
        return {EMBEDDINGS: EmbeddingRoute(engine, config.ec_token)}
    return {}


class GenerateRoute:
    """Token ids in, token ids out, whole or streamed."""

    def __init__(
        self,
        engine: Engine,
        config: RenderConfig,
        *,
        bodies: BodyReader,
        budget: BodyBudget,
        metrics: Metrics,
    ) -> None:
        """Serve `engine`; bodies, budget and metrics are shared with other routes."""
        self._engine = engine
        self._bodies = bodies
        self._budget = budget
        self._metrics = metrics
        # Of a client that takes nothing.
        self._patience = config.stream_timeout or None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST request."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        held = 0
        try:
            body = await self._bodies.read(headers, receive)
            held = len(body)
            given = headers.get(b"x-request-id")
            request_id = None if given is None else given.decode("latin-1")
            if await self._streams(body):
                await self._stream(body, request_id, receive, send)
                return
            async with while_connected(receive):
                answer = await self._engine.generate(body, request_id=request_id)
            await Answer(200, answer).send(send)
        except ClientGoneError as gone:
            self._metrics.lose(str(gone))
        except (Exception, asyncio.CancelledError) as error:
            await self._answer_for(error).send(send)
        finally:
            self._budget.give_back(held)

    async def _streams(self, body: bytes) -> bool:
        """Whether the body asks for a stream; what is no body is for the engine to refuse."""
        if b'"stream"' not in body:
            return False
        if len(body) <= _MOST_SHORT_BYTES:
            return _asks_for_stream(body)
        return await asyncio.to_thread(_asks_for_stream, body)

    async def _stream(
        self, body: bytes, request_id: str | None, receive: Receive, send: Send
    ) -> None:
        begun = False
        try:
            async with (
                while_connected(receive),
                contextlib.aclosing(self._engine.stream(body, request_id=request_id)) as chunks,
            ):
                async for chunk in chunks:
                    if not begun:
                        start = {"type": "http.response.start", "status": 200}
                        await send({**start, "headers": _EVENTS})
                        begun = True
                    await self._send_event(send, chunk)
        except ClientGoneError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if not begun:
                raise
            await self._send_event(send, bytes(self._answer_for(error).body))
        if not begun:
            await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        await self._send_event(send, b"[DONE]")
        await send({"type": "http.response.body", "body": b""})

    async def _send_event(self, send: Send, data: bytes) -> None:
        body = b"".join((b"data: ", data, b"\n\n"))
        try:
            async with asyncio.timeout(self._patience):
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            raise ClientGoneError("generating") from None

    def _answer_for(self, error: BaseException) -> Answer:
        if isinstance(error, RefusedError):
            if error.reason is not None:
                self._metrics.refuse(error.reason)
            return error.answer
        if isinstance(error, RequestError):
            return Answer(error.status, error.body)
        if isinstance(error, EngineError):
            return Answer(error.status, error.body, error.headers)
        if isinstance(error, asyncio.CancelledError):
            # Only the end of the server cancels; what is said now still reaches the client.
            self._metrics.refuse("draining")
            return overloaded("the server was shut down before the answer was ready")
        logger.error("a request to %s failed", GENERATE, exc_info=error)
        return internal_error()


class AbortRoute:
    """Ends requests by their ids; their clients get what there is."""

    def __init__(self, engine: Aborting, bodies: BodyReader, budget: BodyBudget) -> None:
        """Of `engine`."""
        self._engine = engine
        self._bodies = bodies
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST request: 200 whether there were such requests or not."""
        try:
            body = await self._bodies.read(dict(scope["headers"]), receive)
        except RefusedError as refused:
            await refused.answer.send(send)
            return
        except ClientGoneError:
            return
        try:
            ids: Any = _object(body).get("request_ids")
            listed = isinstance(ids, list) and len(ids) <= _MOST_IDS
            if not listed or not all(isinstance(id, str) for id in ids):
                text = "`request_ids` must be a list of strings"
                await refusal(400, "Bad Request", text, param="request_ids").send(send)
                return
            await self._engine.abort(ids)
        finally:
            self._budget.give_back(len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [_NO_BODY]})
        await send({"type": "http.response.body", "body": b""})


class EmbeddingRoute:
    """What an encode worker has published, for prefill workers."""

    def __init__(self, engine: Publishing, token: str | None) -> None:
        """Of `engine`, to whom knows `token` if there is one."""
        self._engine = engine
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one GET request."""
        given = dict(scope["headers"]).get(b"x-ec-token", b"")
        if self._token is not None and not hmac.compare_digest(given, self._token):
            text = "embeddings are for workers that know --ec-token"
            await refusal(403, "PermissionDeniedError", text).send(send)
            return
        query = urllib.parse.parse_qs(scope["query_string"].decode("latin-1"))
        names = query.get("mm_hash", [])
        if len(names) != 1:
            await refusal(400, "Bad Request", "one `mm_hash` is needed", param="mm_hash").send(send)
            return
        body = self._engine.published(names[0])
        if body is None:
            text = "no embedding of this hash is kept here; encode the image again"
            await refusal(404, "NotFoundError", text).send(send)
            return
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", b"%d" % len(body)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(body), _PIECE_BYTES):
            piece = bytes(body[start : start + _PIECE_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`; an empty one for whatever else it is."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _asks_for_stream(body: bytes) -> bool:
    return _object(body).get("stream") is True
