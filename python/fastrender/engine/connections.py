"""Connections to one engine, kept and used again.

httpcore's own pool looks at every connection for every request, which costs more than all else
where there are many. Here there is one engine, and whoever asks it bounds how much: so the idle
connections are a stack, of which the one used last is taken.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence

import httpcore

_MOST_IDLE = 64
# Less than servers keep idle connections: one that is just being closed is a failure.
_IDLE_SECONDS = 4.0

Headers = Sequence[tuple[bytes, bytes]]


class Connections:
    """HTTP/1.1 connections to the server of `base`; for one event loop."""

    def __init__(self, base: str, context: ssl.SSLContext | None) -> None:
        """`base` has no slash at its end; `context` is for those that begin with https."""
        url = httpcore.URL(base)
        self._origin = url.origin
        self._prefix = url.target.removesuffix(b"/")
        self._context = context
        default = {b"http": 80, b"https": 443}[url.scheme]
        port = b"" if url.port in (None, default) else b":%d" % url.port
        host = b"[%s]" % url.host if b":" in url.host else url.host
        self._host = (b"host", host + port)
        self._idle: list[httpcore.AsyncHTTPConnection] = []

    @property
    def idle(self) -> int:
        """Connections that wait to be used."""
        return len(self._idle)

    @contextlib.asynccontextmanager
    async def exchange(
        self,
        method: str,
        path: str,
        headers: Headers,
        *,
        body: bytes = b"",
        seconds: Mapping[str, float | None],
    ) -> AsyncIterator[httpcore.Response]:
        """Ask; the answer's head is there, and its body to be read.

        `seconds` are bounds of `connect`, `read` and `write`. httpcore's errors come out.
        """
        target = self._prefix + path.encode()
        request = httpcore.Request(
            method,
            httpcore.URL(
                scheme=self._origin.scheme,
                host=self._origin.host,
                port=self._origin.port,
                target=target,
            ),
            headers=[self._host, *headers, (b"content-length", b"%d" % len(body))],
            content=body,
            extensions={"timeout": dict(seconds)},
        )
        connection = await self._take()
        try:
            response = await connection.handle_async_request(request)
            try:
                yield response
            finally:
                # An answer that was not read to its end ends its connection, too.
                await response.aclose()
        finally:
            if connection.is_idle() and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
            else:
                await connection.aclose()

    async def drop_expired(self) -> None:
        """Close those that were idle for too long."""
        kept, self._idle = self._idle, []
        for connection in kept:
            if connection.has_expired():
                await connection.aclose()
            else:
                self._idle.append(connection)

    async def close(self) -> None:
        """Close those that are idle; the others close as they are given up."""
        while self._idle:
            await self._idle.pop().aclose()

    async def _take(self) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return httpcore.AsyncHTTPConnection(
            self._origin, ssl_context=self._context, keepalive_expiry=_IDLE_SECONDS
        )
