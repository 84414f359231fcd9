"""A web server for tests whose answers are functions; it counts what it was asked for."""

import collections
import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


class MediaServer:
    """Answers by path; unknown paths get a 404."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: dict[str, Answer] = {}
        self.asked: collections.Counter[str] = collections.Counter()
        self.headers: dict[str, dict[str, str]] = {}

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def serve(self, path: str, body: bytes, status: int = 200, **headers: str) -> str:
        """Answer `path` with these; its URL."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            if "Content_Length" not in headers:
                handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        return self.call(path, answer)

    def redirect(self, path: str, target: str, status: int = 302) -> str:
        return self.serve(path, b"", status, Location=target)

    def call(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return self.url(path)


@contextlib.contextmanager
def running(context: ssl.SSLContext | None = None) -> Iterator[MediaServer]:
    """A server on a free port of the loopback interface, with TLS if there is a context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.asked[self.path] += 1
            server.headers[self.path] = dict(self.headers.items())
            if answer := server.answers.get(self.path):
                with contextlib.suppress(ConnectionError):
                    answer(self)
            else:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        http.socket = context.wrap_socket(http.socket, server_side=True)
    server = MediaServer(http.server_address[1])
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
