"""uvicorn's HTTP/1.1 connection: with the bounds on request heads that it lacks, and a short cut.

A small request that arrives whole is answered where it was read, when the application can: without
an ASGI task, its events and its queues, which cost more than rendering a short prompt does.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fastrender.server.answers import Answer
from fastrender.server.app import Application
from fastrender.server.render import MOST_SHORT_BYTES

_MOST_HEAD_BYTES = 64 << 10
_HEAD_SECONDS = 30.0
_MOST_LENGTH_DIGITS = 6


class Connection(HttpToolsProtocol):
    """Closes connections whose request head is too long, or takes too long to come."""

    _head_bytes = 0
    _deadline: asyncio.TimerHandle | None = None
    # Whether the head of the latest request has been read.
    _head_is_over = False
    # The body so far, of a request that may yet be answered at once.
    _held: list[bytes] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Serve uvicorn's application; the short cut is for ours, with nothing around it."""
        super().__init__(*args, **kwargs)
        app = self.config.loaded_app
        self._application = app if isinstance(app, Application) else None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, within bounds."""
        super().data_received(data)
        if self._held is not None and not self.transport.is_closing():
            self._let_go()
        if self._head_is_over:
            if self._deadline is not None:
                self._forget_head()
            return
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MOST_HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        elif self._deadline is None:
            self._await_head()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head_is_over = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hold the request back if it may be answered at once; its body may be here already."""
        self._head_is_over = True
        if self._application is not None and self._may_be_answered_at_once(self._application):
            self._held = []
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if self._held is None:
            super().on_body(body)
        else:
            self._held.append(body)

    def on_message_complete(self) -> None:
        """Answer, or let the request go its usual way."""
        held, application = self._held, self._application
        if held is None or application is None:
            super().on_message_complete()
            return
        answer = application.answer_at_once(self.url, self.headers, b"".join(held))
        if answer is None:
            self._let_go()
            super().on_message_complete()
        else:
            self._held = None
            self._write(answer)

    def _may_be_answered_at_once(self, application: Application) -> bool:
        if self.parser.get_method() != b"POST" or not application.may_answer_at_once(self.url):
            return False
        # Answers must not overtake one another, nor pile up for a client that does not read them.
        busy = self.cycle is not None and not self.cycle.response_complete
        if (
            busy
            or self.flow.write_paused
            or self.expect_100_continue
            or self.parser.should_upgrade()
        ):
            return False
        for name, value in self.headers:
            if name == b"content-length":
                return len(value) <= _MOST_LENGTH_DIGITS and int(value) <= MOST_SHORT_BYTES
        return False

    def _let_go(self) -> None:
        """Start the held request as uvicorn would have, with the body so far."""
        held, self._held = self._held, None
        super().on_headers_complete()
        for piece in held or ():
            super().on_body(piece)

    def _write(self, answer: Answer) -> None:
        headers = [*self.server_state.default_headers, *answer.head()]
        keep_alive = self.parser.should_keep_alive()
        if not keep_alive:
            headers.append((b"connection", b"close"))
        lines = [b"%s: %s\r\n" % header for header in headers]
        self.transport.write(b"".join([_STATUS_LINES[answer.status], *lines, b"\r\n", answer.body]))
        if not keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _forget_head(self) -> None:
        self._head_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
