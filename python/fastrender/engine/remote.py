"""Engines over HTTP: any server that speaks `POST /inference/v1/generate`."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING

import httpcore

from fastrender.engine.answers import bad_answer, failure, failure_of_event
from fastrender.engine.balance import Backend, Balancer, Prompt
from fastrender.engine.events import EventReader, TooLongError
from fastrender.engine.interface import EngineError

if TYPE_CHECKING:
    from fastrender.config import RenderConfig

GENERATE = "/inference/v1/generate"
_IDLE_CONNECTIONS = 64
# Less than servers keep idle connections: one that is just being closed is a failure.
_IDLE_SECONDS = 4.0
_PROBE_SECONDS = 5.0
_PROBE_TIMEOUT = 2.0
_ERROR_BYTES = 64 << 10
_DONE = b"[DONE]"
# The request cannot have been answered: another engine may have it.
_UNANSWERED = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.ReadError,
    httpcore.WriteError,
    httpcore.WriteTimeout,
    httpcore.RemoteProtocolError,
)

logger = logging.getLogger("fastrender.engine")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """How engines are asked; 0 seconds mean no bound."""

    api_key: str | None = None
    connect_timeout: float = 5.0
    timeout: float = 600.0
    connections: int = 1024
    answer_bytes: int = 256 << 20

    @classmethod
    def of(cls, config: "RenderConfig") -> "RemoteOptions":
        """As the settings say."""
        return cls(
            api_key=config.engine_api_key,
            connect_timeout=config.engine_connect_timeout,
            timeout=config.engine_timeout,
            connections=config.engine_connections,
            answer_bytes=config.engine_answer_bytes,
        )


class RemoteEngine:
    """One engine, as far as its caller sees: several that do the same.

    A request that cannot be handed over goes to another of them, once. Whoever stops waiting closes
    the request's connection, which is how an engine knows that nobody wants its tokens.
    """

    def __init__(self, urls: Sequence[str], options: RemoteOptions) -> None:
        """`urls` are bases, without slashes at their ends."""
        self._options = options
        self.balancer = Balancer(urls, most=options.connections)
        self._pools: dict[Backend, httpcore.AsyncConnectionPool] = {}
        self._probes: list[asyncio.Task[None]] = []
        self._headers = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        if options.api_key is not None:
            self._headers.append((b"authorization", b"Bearer " + options.api_key.encode()))

    async def start(self) -> None:
        """Begin to look after the engines."""
        for backend in self.balancer.backends:
            self._pools[backend] = httpcore.AsyncConnectionPool(
                max_connections=self._options.connections + 1,
                max_keepalive_connections=_IDLE_CONNECTIONS,
                keepalive_expiry=_IDLE_SECONDS,
            )
            self._probes.append(asyncio.create_task(self._look_after(backend)))

    async def close(self) -> None:
        """Close all connections."""
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        self._probes.clear()
        for pool in self._pools.values():
            await pool.aclose()

    async def healthy(self) -> bool:
        """Whether one of the engines answers."""
        return any(not backend.down for backend in self.balancer.backends)

    async def generate(self, body: bytes, *, request_id: str | None = None) -> bytes:
        """The whole answer."""
        try:
            async with (
                asyncio.timeout(self._options.timeout or None),
                self._exchange(body, request_id) as response,
            ):
                answer = await self._read(response, self._options.answer_bytes)
        except TimeoutError:
            raise self._timed_out() from None
        if not answer.lstrip().startswith(b"{"):
            raise bad_answer("it is no JSON object")
        return answer

    async def stream(
        self, body: bytes, *, request_id: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The answer's chunks."""
        events = EventReader(self._options.answer_bytes)
        async with self._exchange(body, request_id) as response:
            content_type = dict(_lower(response.headers)).get(b"content-type", b"")
            if not content_type.startswith(b"text/event-stream"):
                raise bad_answer("it is no stream of events")
            done = False
            with self._reading():
                async for piece in response.aiter_stream():
                    # Read to its end, a connection can be used again.
                    if done:
                        continue
                    for event in events.feed(piece):
                        if event == _DONE:
                            done = True
                            break
                        if (error := failure_of_event(event)) is not None:
                            raise error
                        yield event
        if not done:
            raise bad_answer("it broke off")

    @contextlib.asynccontextmanager
    async def _exchange(
        self, body: bytes, request_id: str | None
    ) -> AsyncIterator[httpcore.Response]:
        """Post `body`; the answer's head is good."""
        async with contextlib.AsyncExitStack() as stack:
            response, backend = await self._post(body, request_id, stack)
            if response.status != 200:
                text = await self._read(response, _ERROR_BYTES)
                raise failure(response.status, text, _lower(response.headers), backend.url)
            yield response

    async def _post(
        self, body: bytes, request_id: str | None, stack: contextlib.AsyncExitStack
    ) -> tuple[httpcore.Response, Backend]:
        prompt = Prompt.of(body)
        headers = [*self._headers, (b"content-length", b"%d" % len(body))]
        if request_id is not None:
            headers.append((b"x-request-id", request_id.encode("latin-1", "replace")))
        failed = None
        while True:
            backend = self.balancer.choose(prompt, avoid=failed)
            attempt = contextlib.AsyncExitStack()
            try:
                attempt.enter_context(self.balancer.working(backend))
                response = await attempt.enter_async_context(self._open(backend, headers, body))
            except BaseException as error:
                await attempt.aclose()
                if isinstance(error, httpcore.TimeoutException) and not isinstance(
                    error, _UNANSWERED
                ):
                    raise self._timed_out() from error
                if not isinstance(error, _UNANSWERED):
                    raise
                backend.failed()
                logger.warning("%s does not answer: %s", backend.url, _named(error))
                if failed is not None:
                    raise EngineError(
                        503, "no engine answers", headers=[(b"retry-after", b"1")]
                    ) from error
                failed = backend
            else:
                stack.push_async_exit(attempt)
                return response, backend

    def _open(
        self, backend: Backend, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> contextlib.AbstractAsyncContextManager[httpcore.Response]:
        quiet = self._options.timeout or None
        timeout = {"connect": self._options.connect_timeout, "read": quiet, "write": quiet}
        return self._pools[backend].stream(
            "POST",
            backend.url + GENERATE,
            headers=headers,
            content=body,
            extensions={"timeout": timeout},
        )

    async def _read(self, response: httpcore.Response, most: int) -> bytes:
        pieces: list[bytes] = []
        left = most
        with self._reading():
            async for piece in response.aiter_stream():
                left -= len(piece)
                if left < 0:
                    raise bad_answer(f"it is larger than the {most} bytes that are read")
                pieces.append(piece)
        return b"".join(pieces)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """While a body is read; the socket is read as fast as the body is."""
        try:
            yield
        except httpcore.TimeoutException:
            raise self._timed_out() from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise bad_answer("it broke off") from error
        except TooLongError:
            raise bad_answer("an event in it is too long") from None

    def _timed_out(self) -> EngineError:
        return EngineError(504, f"the engine said nothing for {self._options.timeout:g} seconds")

    async def _look_after(self, backend: Backend) -> None:
        while True:
            await asyncio.sleep(backend.pause if backend.down else _PROBE_SECONDS)
            why = await self._probe(backend)
            if why is None:
                if backend.down:
                    logger.info("%s answers again", backend.url)
                backend.answered()
            else:
                if not backend.down:
                    logger.warning("%s does not answer: %s", backend.url, why)
                backend.failed()

    async def _probe(self, backend: Backend) -> str | None:
        """What is wrong with an engine."""
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), _PROBE_TIMEOUT)
        try:
            async with self._pools[backend].stream(
                "GET",
                backend.url + "/health",
                headers=[*self._headers[1:]],
                extensions={"timeout": timeout},
            ) as response:
                await self._read(response, _ERROR_BYTES)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            return _named(error)
        except EngineError as error:
            return error.message
        return f"/health answers {response.status}" if response.status >= 500 else None


def _lower(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers]


def _named(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()
