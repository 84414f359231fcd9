"""The hot routes: a POST body in, the native renderer's answer out.

Plain ASGI callables, without Starlette's request and response objects, which would cost more than
rendering a short prompt does. Short work is done on the event loop, since handing it to a thread
takes longer than it does; the rest goes to the lane. A request that comes whole and plain is not
even made an ASGI task: `answer_at_once`.
"""

import asyncio
import dataclasses
import functools
import logging
import time
from typing import Any

from starlette.types import Receive, Scope, Send

from fastrender._native import Pending
from fastrender.config import RenderConfig
from fastrender.errors import BusyError, RequestError
from fastrender.server.answers import Answer, internal_error, overloaded
from fastrender.server.bodies import BodyBudget, BodyReader, RefusedError
from fastrender.server.interface import Renderer
from fastrender.server.metrics import Metrics
from fastrender.server.work import ClientGoneError, QueueFullError, WorkLane, disconnected

RENDER_ROUTES = {
    "/v1/chat/completions/render": "chat",
    "/v1/completions/render": "completions",
    "/v1/chat/completions/derender": "chat_derender",
    "/v1/completions/derender": "completions_derender",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
}
# Larger bodies are not even looked at on the event loop; the renderer's own bounds are tighter.
MOST_SHORT_BYTES = 32 << 10

logger = logging.getLogger("fastrender.server")


@dataclasses.dataclass(slots=True)
class Span:
    """When a piece of work started and ended."""

    started: float = 0.0
    ended: float = 0.0


class RenderRoute:
    """One hot route."""

    def __init__(
        self,
        path: str,
        renderer: Renderer,
        config: RenderConfig,
        *,
        lane: WorkLane,
        budget: BodyBudget,
        metrics: Metrics,
    ) -> None:
        """Serve `path` with `renderer`; lane, budget and metrics are shared by all routes."""
        self._path = path
        self._route = RENDER_ROUTES[path]
        self._renderer = renderer
        self._lane = lane
        self._budget = budget
        self._metrics = metrics
        self._requests = metrics.requests_of(path, "POST")
        self._bodies = BodyReader(config, budget)
        self._most_bytes = config.max_request_bytes

    def answer_at_once(self, body: bytes, request_id: str | None) -> Answer | None:
        """The answer to a plain request of short work, counted; `None` for any other."""
        started = time.perf_counter()
        size = len(body)
        if size > MOST_SHORT_BYTES or size > self._most_bytes:
            return None
        answer = self._answer_short(body, request_id)
        if not isinstance(answer, Answer):
            return None
        seconds = time.perf_counter() - started
        self._requests.count(answer.status, size, len(answer.body), seconds)
        return answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST request."""
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        body = b""
        try:
            body = await self._bodies.read(headers, receive)
            try:
                answer = await self.answer(body, headers.get(b"x-request-id"), receive)
            finally:
                self._budget.give_back(len(body))
        except RefusedError as refused:
            answer = refused.answer
            if refused.reason is not None:
                self._metrics.refuse(refused.reason)
        except ClientGoneError as gone:
            self._metrics.lose(str(gone))
            return
        await answer.send(send)
        seconds = time.perf_counter() - started
        self._requests.count(answer.status, len(body), len(answer.body), seconds)

    async def answer(self, body: bytes, request_id: bytes | None, receive: Receive) -> Answer:
        """The answer to a body; `receive` tells whether the client still waits for it."""
        name = None if request_id is None else request_id.decode("latin-1")
        short = self._answer_short(body, name) if len(body) <= MOST_SHORT_BYTES else None
        if isinstance(short, Answer):
            return short
        try:
            begun = await self._begin_in_lane(body, name, receive) if short is None else short
            if isinstance(begun, bytes):
                return Answer(200, begun)
            return Answer(200, await self._complete(begun, receive))
        except RequestError as error:
            return Answer(error.status, error.body)
        except (QueueFullError, BusyError):
            raise RefusedError(overloaded("too many requests wait already"), "queue_full") from None
        except asyncio.CancelledError:
            # Only the end of the server cancels; what is said now still reaches the client.
            text = "the server was shut down before the answer was ready"
            raise RefusedError(overloaded(text), "draining") from None
        except (ClientGoneError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            return self._failed()

    def _answer_short(self, body: bytes, request_id: str | None) -> Answer | Pending | None:
        """The answer, or what waits for images, if it is short work to know."""
        started = time.perf_counter()
        try:
            begun = self._renderer.begin_short(self._route, body, request_id)
            if not isinstance(begun, bytes):
                return begun
            answer = Answer(200, begun)
        except RequestError as error:
            answer = Answer(error.status, error.body)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            answer = self._failed()
        self._metrics.render(self._route, time.perf_counter() - started)
        return answer

    async def _complete(self, pending: Pending, receive: Receive) -> bytes | memoryview:
        """The answer to a request with images; nobody waits for it once the client is gone."""
        started = time.perf_counter()
        job = self._renderer.complete(pending)
        answer = asyncio.wrap_future(job.answer)
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            either: set[asyncio.Future[Any]] = {answer, gone}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientGoneError("queued")
            return answer.result()
        finally:
            gone.cancel()
            if not answer.done():
                job.cancel()
                answer.cancel()
            self._metrics.render(self._route, time.perf_counter() - started)

    def _failed(self) -> Answer:
        # For any BaseException, since that is what a panic of the native half arrives as.
        logger.exception("a request to %s failed", self._path)
        return internal_error()

    async def _begin_in_lane(
        self, body: bytes, request_id: str | None, receive: Receive
    ) -> bytes | Pending:
        queued = time.perf_counter()
        span = Span()
        try:
            begin = functools.partial(self._begin, body, request_id, span)
            return await self._lane.run(receive, begin)
        finally:
            # Counted here and not on the thread: cells have one writer.
            if span.ended:
                self._metrics.wait(span.started - queued)
                self._metrics.render(self._route, span.ended - span.started)

    def _begin(self, body: bytes, request_id: str | None, span: Span) -> bytes | Pending:
        span.started = time.perf_counter()
        try:
            return self._renderer.begin(self._route, body, request_id)
        finally:
            span.ended = time.perf_counter()
