"""Rendering a file: a request a line in, an answer a line out, in the same order."""

import collections
import concurrent.futures
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, Protocol, TextIO

from fastrender.errors import RequestError, error_envelope

ROUTES = ("auto", "chat", "completions")

# Enough lines a task that handing it over costs little, few enough that memory stays small.
_TASK_BYTES = 64 << 10
_TASKS_AHEAD = 4
_PROGRESS_SECONDS = 0.2


class LineRenderer(Protocol):
    """What rendering a line needs of a renderer."""

    def render(self, route: str, body: bytes, request_id: str | None = None, /) -> bytes:
        """The finished answer's bytes; `RequestError` for a request that has none."""
        ...


def render_lines(
    renderer: LineRenderer,
    source: BinaryIO,
    sink: BinaryIO,
    *,
    route: str,
    most_bytes: int,
    progress: "Progress",
    threads: int | None = None,
) -> int:
    """Write the answer to each line of `source` to `sink`; how many were errors."""
    workers = threads or os.cpu_count() or 1
    failures = 0
    pending: collections.deque[concurrent.futures.Future[list[tuple[bytes, bool]]]]
    pending = collections.deque()

    def write_oldest() -> int:
        answers = pending.popleft().result()
        for answer, _ in answers:
            sink.write(answer)
            sink.write(b"\n")
        failed = sum(not good for _, good in answers)
        progress.advance(len(answers), failed)
        return failed

    with concurrent.futures.ThreadPoolExecutor(workers, "render") as pool:
        try:
            for lines in _tasks(source, most_bytes):
                pending.append(pool.submit(_render_task, renderer, lines, route, most_bytes))
                if len(pending) > workers * _TASKS_AHEAD:
                    failures += write_oldest()
            while pending:
                failures += write_oldest()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    sink.flush()
    progress.finish()
    return failures


class Progress:
    """A line on a terminal that says how far it is; nothing where there is no terminal."""

    def __init__(self, screen: TextIO, source: BinaryIO) -> None:
        """Report on `screen`, with a share done where `source` has a size."""
        self._screen = screen if screen.isatty() else None
        self._source = source
        try:
            self._size = os.fstat(source.fileno()).st_size if source.seekable() else 0
        except OSError:
            self._size = 0
        self._started = self._shown = time.monotonic()
        self._done = self._failed = 0

    def advance(self, done: int, failed: int) -> None:
        """Count lines that were written."""
        self._done += done
        self._failed += failed
        if time.monotonic() - self._shown >= _PROGRESS_SECONDS:
            self._show()

    def finish(self) -> None:
        """Show the end and leave the line."""
        if self._screen is not None:
            self._show()
            self._screen.write("\n")

    def _show(self) -> None:
        self._shown = time.monotonic()
        if self._screen is None:
            return
        rate = self._done / max(self._shown - self._started, 1e-9)
        share = f"{min(1.0, self._source.tell() / self._size):4.0%} " if self._size else ""
        failed = f", {self._failed} failed" if self._failed else ""
        self._screen.write(f"\r{share}{self._done} rows, {rate:,.0f} rows/s{failed}\x1b[K")
        self._screen.flush()


def _tasks(source: BinaryIO, most_bytes: int) -> Iterator[list[bytes]]:
    """The lines that are not blank, several at a time; a line too long is cut just beyond."""
    lines: list[bytes] = []
    size = 0
    while line := source.readline(most_bytes + 2):
        if not line.endswith(b"\n") and len(line) > most_bytes:
            _skip_line(source)
        line = line.strip()
        if not line:
            continue
        lines.append(line)
        size += len(line)
        if size >= _TASK_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _skip_line(source: BinaryIO) -> None:
    while (piece := source.readline(_TASK_BYTES)) and not piece.endswith(b"\n"):
        pass


def _render_task(
    renderer: LineRenderer, lines: list[bytes], route: str, most_bytes: int
) -> list[tuple[bytes, bool]]:
    return [_render_line(renderer, line, route, most_bytes) for line in lines]


def _render_line(
    renderer: LineRenderer, line: bytes, route: str, most_bytes: int
) -> tuple[bytes, bool]:
    """An answer or an error's envelope, and which of the two."""
    if len(line) > most_bytes:
        text = f"the line is longer than {most_bytes} bytes"
        return error_envelope(text, "RequestTooLargeError", None, 413), False
    try:
        answer = renderer.render(_route_of(line) if route == "auto" else route, line)
    except RequestError as error:
        return bytes(error.body), False
    return answer, True


def _route_of(line: bytes) -> str:
    """Chat for a body with messages; a body that does not parse gets its error from there too."""
    # Nearly every body tells without being parsed: completions have no such word at all.
    if b'"messages"' not in line:
        return "completions" if b'"prompt"' in line else "chat"
    try:
        body = json.loads(line)
    except ValueError:
        return "chat"
    return "chat" if not isinstance(body, dict) or "messages" in body else "completions"


def open_source(path: str) -> BinaryIO:
    """The file at `path`, or stdin for `-`."""
    return sys.stdin.buffer if path == "-" else open(path, "rb")


def open_sink(path: str) -> BinaryIO:
    """The file at `path`, or stdout for `-`."""
    return sys.stdout.buffer if path == "-" else open(path, "wb")
