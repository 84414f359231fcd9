"""Rendering a file: a request a line in, an answer a line out, in the same order."""

import codecs
import collections
import concurrent.futures
import contextlib
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, Protocol, TextIO

from fastrender.errors import RequestError, error_envelope

# Enough lines a task that handing it over costs little, few enough that memory stays small.
_TASK_BYTES = 64 << 10
_TASKS_AHEAD = 4
_PROGRESS_SECONDS = 0.2
_STANDARD_NAMES: dict[int | str, str] = {0: "stdin", 1: "stdout", "-": "the standard stream"}

logger = logging.getLogger("fastrender.batch")


class BatchError(ValueError):
    """A file that cannot be read or written; the message is one sentence that names it."""


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
        with _naming("write", sink):
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
            progress.finish()
            raise
    with _naming("write", sink):
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
    start = codecs.BOM_UTF8
    while line := _read_line(source, most_bytes + 2):
        if not line.endswith(b"\n") and len(line) > most_bytes:
            _skip_line(source)
        # Some editors begin a UTF-8 file with a mark.
        line, start = line.removeprefix(start).strip(), b""
        if not line:
            continue
        lines.append(line)
        size += len(line)
        if size >= _TASK_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _read_line(source: BinaryIO, most_bytes: int) -> bytes:
    with _naming("read", source):
        return source.readline(most_bytes)


def _skip_line(source: BinaryIO) -> None:
    while (piece := _read_line(source, _TASK_BYTES)) and not piece.endswith(b"\n"):
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
    except BaseException:
        # BaseException, since that is what a panic of the native half arrives as.
        logger.exception("a request failed")
        text = "the renderer failed on this request; its log says why"
        return error_envelope(text, "InternalServerError", None, 500), False
    return answer, True


def _route_of(line: bytes) -> str:
    """Chat for a body with messages; a body that does not parse gets its error from there too."""
    # Nearly every body tells without being parsed: completions have no such word at all.
    if b'"messages"' not in line:
        return "completions" if b'"prompt"' in line else "chat"
    try:
        # Numbers as they are written: some have more digits than Python reads.
        body = json.loads(line, parse_int=str)
    except (ValueError, RecursionError):
        return "chat"
    return "chat" if not isinstance(body, dict) or "messages" in body else "completions"


@contextlib.contextmanager
def open_source(path: str) -> Iterator[BinaryIO]:
    """The file at `path`, or stdin for `-`."""
    if path == "-" and sys.stdin is None:
        raise BatchError("cannot read stdin: it is closed; --input names a file")
    with _naming("read", path):
        source = open(0 if path == "-" else path, "rb", closefd=path != "-")  # noqa: SIM115
    with source:
        yield source


@contextlib.contextmanager
def open_sink(path: str) -> Iterator[BinaryIO]:
    """The file at `path`, or stdout for `-`."""
    if path == "-" and sys.stdout is None:
        raise BatchError("cannot write stdout: it is closed; --output names a file")
    with _naming("write", path):
        sink = open(1 if path == "-" else path, "wb", closefd=path != "-")  # noqa: SIM115
    try:
        yield sink
    except BaseException:
        # What could not be written a moment ago cannot be now, and has been told of.
        with contextlib.suppress(OSError):
            sink.close()
        raise
    with _naming("write", sink):
        sink.close()


def refuse_same_file(source: BinaryIO, output: str) -> None:
    """Refuse to write over, or at the end of, the file that is read, whatever its names are."""
    try:
        read = os.fstat(source.fileno())
        written = os.fstat(1) if output == "-" else os.stat(output)
    except OSError:
        # There is no such file yet, or it is reported when it is opened.
        return
    if stat.S_ISREG(read.st_mode) and os.path.samestat(read, written):
        raise BatchError(f"--output is the file that --input reads, {_name(source)}; name another")


@contextlib.contextmanager
def _naming(action: str, file: BinaryIO | str) -> Iterator[None]:
    """Name the file in errors of the system; a broken pipe stays what it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BatchError(f"cannot {action} {_name(file)}: {why}") from error


def _name(file: BinaryIO | str) -> str:
    name = file if isinstance(file, str) else getattr(file, "name", "-")
    return _STANDARD_NAMES.get(name) or f"`{name}`"
