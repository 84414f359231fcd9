"""uvicorn's HTTP/1.1 connection: with the bounds on request heads that it lacks, and a short cut.

A plain request that arrives in one piece is answered where it was read, when the application can:
without callbacks for each header, an ASGI task, its events and its queues, which together cost more
than rendering a short prompt does. All else goes uvicorn's way.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fastrender._native import read_plain_request
from fastrender.server.answers import Answer, refusal
from fastrender.server.app import Application
from fastrender.server.render import MOST_GLANCED_BYTES

_MOST_HEAD_BYTES = 64 << 10
_HEAD_SECONDS = 30.0
_MOST_PLAIN_BYTES = MOST_GLANCED_BYTES + (4 << 10)


class Connection(HttpToolsProtocol):
    """Closes connections whose request head is too long, or takes too long to come.

    A request that offers another protocol (`Upgrade: h2c`, which curl sends under --http2) is read
    as if it did not, as HTTP wants of a server that stays: httptools takes its body for the other
    protocol's bytes. So the request is read a second time without the offer.
    """

    _head_bytes = 0
    _deadline: asyncio.TimerHandle | None = None
    # Whether the parser is inside of a request, and inside of its head.
    _in_request = False
    _in_head = False
    # When a request was last answered past uvicorn, which its timer of idle time does not know.
    _answered = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Serve uvicorn's application; the short cut is for ours, with nothing around it."""
        super().__init__(*args, **kwargs)
        self.parser = self._new_parser()
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
        if len(data) <= _MOST_PLAIN_BYTES and self._answer_at_once(data):
            return
        super().data_received(data)
        if not self._in_head:
            if self._deadline is not None and self.cycle is not None:
                self._forget_head()
            return
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MOST_HEAD_BYTES:
            self.send_400_response(f"the request's head is larger than {_MOST_HEAD_BYTES} bytes")
        elif self._deadline is None:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request in the envelope that every other error has."""
        if msg.startswith("Invalid HTTP"):
            msg = "the request is not valid HTTP/1.1"
        answer = refusal(400, "BadRequestError", msg, headers=[(b"connection", b"close")])
        self.transport.write(self._written(answer))
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_request = self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is over, unless it is to be read anew."""
        if not self._offers_upgrade():
            self._in_head = False
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Its body is over, unless it is to be read anew."""
        if not self._offers_upgrade():
            self._in_request = False
            super().on_message_complete()

    def without_offer(self, rest: bytes) -> tuple["_Parser", bytes]:
        """A new parser, and for it the head that was just read, without its offer, and `rest`."""
        version = self.parser.get_http_version().encode()
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = self._new_parser()
        return self.parser, b"\r\n".join([*lines, b"", rest])

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless it was used meanwhile."""
        idle = self.loop.time() - self._answered
        if idle < self.timeout_keep_alive:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive - idle, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def _new_parser(self) -> "_Parser":
        parser = _Parser(self)
        # As uvicorn sets up its own.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _offers_upgrade(self) -> bool:
        # CONNECT leaves HTTP whatever its head says; uvicorn refuses it for its target.
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _answer_at_once(self, data: bytes) -> bool:
        """Answer `data`, if it is a plain request of short work."""
        if self._application is None or self._in_request or self.flow.write_paused:
            return False
        # Answers must not overtake one another.
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        plain = read_plain_request(data)
        if plain is None:
            return False
        answer = self._application.answer_at_once(*plain)
        if answer is None:
            return False
        self.transport.write(self._written(answer))
        self.server_state.total_requests += 1
        self._answered = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._forget_head()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        return True

    def _written(self, answer: Answer) -> bytes:
        lines: list[bytes | memoryview] = [_STATUS_LINES[answer.status]]
        for name, value in (*self.server_state.default_headers, *answer.head()):
            lines += (name, b": ", value, b"\r\n")
        lines += (b"\r\n", answer.body)
        return b"".join(lines)

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _forget_head(self) -> None:
        self._head_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Parser(httptools.HttpRequestParser):
    """httptools' parser, which goes on after a request that offers an upgrade."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._connection = connection

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]
        parser = self
        while data:
            try:
                super(_Parser, parser).feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                if parser.get_method() == b"CONNECT":
                    raise
                parser, data = self._connection.without_offer(data[offer.args[0] :])
            else:
                return


_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
