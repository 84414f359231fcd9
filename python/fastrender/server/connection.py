"""uvicorn's HTTP/1.1 connection, with the bounds on request heads that it lacks."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST_HEAD_BYTES = 256 << 10
_MOST_HEADERS = 256
_HEAD_SECONDS = 30.0


class TooManyHeadersError(Exception):
    """A request has more headers than are read; the parser turns it into a 400."""


class BoundedConnection(HttpToolsProtocol):
    """Closes connections whose request head is too long, or takes too long to come."""

    _head_bytes = 0
    _headers_seen = 0
    _in_head = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, within bounds."""
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MOST_HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def on_message_begin(self) -> None:
        """Start counting anew."""
        self._in_head = True
        self._headers_seen = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header more, if it is not one too many."""
        self._headers_seen += 1
        if self._headers_seen > _MOST_HEADERS:
            raise TooManyHeadersError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request on."""
        self._in_head = False
        self._head_bytes = 0
        self._cancel_deadline()
        super().on_headers_complete()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
