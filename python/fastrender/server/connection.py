"""uvicorn's HTTP/1.1 connection, with the bounds on request heads that it lacks."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_HEAD_BYTES = 64 << 10
_HEAD_SECONDS = 30.0


class BoundedConnection(HttpToolsProtocol):
    """Closes connections whose request head is too long, or takes too long to come."""

    _head_bytes = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._head_is_done()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, within bounds."""
        super().data_received(data)
        # A head has begun with a scope of its own, and is over when there is a cycle for it.
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:
            if self._deadline is not None:
                self._head_is_done()
            return
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MOST_HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _head_is_done(self) -> None:
        self._head_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
