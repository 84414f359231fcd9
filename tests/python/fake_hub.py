"""A hub on 127.0.0.1 with a few repositories, for the library that talks to the real one."""

import http.server
import json
import threading
from typing import Any, Self

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves `repositories`, name to file to content; `gated/…` ones are not for everybody.

    `requests` collects the paths that were asked for, `tokens` the authorizations.
    """

    def __init__(self, repositories: dict[str, dict[str, bytes]]) -> None:
        self.repositories = repositories
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub._answer(self, with_body=True)

            def do_HEAD(self) -> None:
                hub._answer(self, with_body=False)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: http.server.BaseHTTPRequestHandler, *, with_body: bool) -> None:
        path = request.path.split("?")[0].strip("/")
        self.requests.append(path)
        self.tokens.add(request.headers.get("authorization"))
        status, body, headers = self._content(path)
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        if with_body:
            request.wfile.write(body)

    def _content(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        parts = path.removeprefix("api/models/").split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        if name.startswith("gated/"):
            return 403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}
        files = self.repositories.get(name)
        if files is None:
            return 404, b"{}", {"X-Error-Code": "RepoNotFound"}
        if len(rest) > 1 and rest[1] not in ("main", COMMIT):
            return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
        if path.startswith("api/models/") and rest[:1] == ["tree"]:
            entries = [
                {"type": "file", "path": file, "size": len(content), "oid": COMMIT}
                for file, content in files.items()
            ]
            return 200, json.dumps(entries).encode(), {"Content-Type": "application/json"}
        if path.startswith("api/models/"):
            siblings = [{"rfilename": file} for file in files]
            info = {"id": name, "sha": COMMIT, "siblings": siblings}
            return 200, json.dumps(info).encode(), {"Content-Type": "application/json"}
        file = "/".join(rest[2:])
        if rest[:1] != ["resolve"] or file not in files:
            return 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
        return 200, files[file], {"ETag": f'"{file}"', "X-Repo-Commit": COMMIT}
