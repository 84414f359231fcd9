"""The `fastrender` command."""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    import socket
    from collections.abc import Callable
    from types import FrameType

    from fastrender.arguments import CommandLine
    from fastrender.config import RenderConfig
    from fastrender.renderer import Renderer

_USAGE = """usage: fastrender COMMAND [options]

commands:
  serve [MODEL]    serve a model's rendering over HTTP
  render [MODEL]   render a file of requests, a line each
  parse            show what the parsers make of models' outputs

options:
  --version        print the version
  -h, --help       print this; `fastrender COMMAND --help` says more
"""
_FAILED = 1
_USAGE_ERROR = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` (or the process's own) name; the exit code."""
    started = time.perf_counter()
    _hold_standard_descriptors()
    try:
        try:
            code = _run(list(sys.argv[1:] if arguments is None else arguments), started)
        finally:
            # Help and version too may go to a pipe that nobody reads, or to a full disk.
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return _BROKEN_PIPE
    except OSError as error:
        _discard_output()
        why = (error.strerror or str(error)).lower()
        return _complain(f"cannot write stdout: {why}", _FAILED)
    return code


def _run(words: list[str], started: float) -> int:
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if command in ("-V", "--version"):
        from fastrender.version import own_version

        print(f"fastrender {own_version()}")
        return 0
    if command not in ("serve", "render", "parse"):
        problem = f"unknown command `{command}`" if command else "a command is missing"
        return _complain(f"{problem}; known: serve, render, parse", _USAGE_ERROR)
    if command == "parse":
        from fastrender import parse

        return parse.main(rest)
    return _serve(rest, started) if command == "serve" else _render(rest)


def _hold_standard_descriptors() -> None:
    """Open what was closed at the start, lest files and sockets get the numbers 0 to 2."""
    for descriptor, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _discard_output() -> None:
    """Keep the interpreter from writing to stdout once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def load_renderer(config: "RenderConfig") -> "Renderer":
    """The renderer that `config` describes; a function of a module, so that workers find it."""
    from fastrender.renderer import Renderer

    if config.hf_token:
        # Where huggingface_hub looks for it.
        os.environ["HF_TOKEN"] = config.hf_token
    return Renderer.from_config(config)


def _complain(text: str, code: int) -> int:
    print(f"fastrender: {text}", file=sys.stderr)
    return code


def _parse(
    command: str,
    words: Sequence[str],
    add_options: "Callable[[argparse.ArgumentParser], None] | None" = None,
) -> "CommandLine | int":
    """The command line, its warnings logged; or the exit code after saying what is wrong."""
    from fastrender.arguments import parse
    from fastrender.settings import ConfigError

    try:
        line = parse(words, os.environ, command=command, add_options=add_options)
    except ConfigError as error:
        return _complain(str(error), _USAGE_ERROR)
    import logging

    from fastrender.logs import configure_logging

    configure_logging(line.config)
    for warning in line.warnings:
        logging.getLogger("fastrender").warning("%s", warning)
    return line


def _serve(words: Sequence[str], started: float) -> int:
    line = _parse("serve", words)
    if isinstance(line, int):
        return line
    from fastrender.server import sockets

    try:
        if line.config.ssl_certfile is not None:
            from fastrender.server import tls

            tls.check(line.config)
        bound = sockets.bind(line.config)
    except ValueError as error:
        return _complain(str(error), _FAILED)
    try:
        if line.config.workers > 1:
            from fastrender.server.workers import supervise

            code = supervise(line.config, load_renderer, bound, started)
        else:
            code = _serve_alone(line.config, bound, started)
    except (ValueError, OSError) as error:
        return _complain(str(error), _FAILED)
    finally:
        sockets.release(line.config, bound)
    from fastrender.server.serve import leave

    return leave(code)


class _Stopped(BaseException):
    """SIGTERM, before there is a server that drains."""


def _stop(number: int, frame: "FrameType | None") -> None:
    raise _Stopped


def _serve_alone(config: "RenderConfig", bound: "socket.socket", started: float) -> int:
    import signal

    before = signal.signal(signal.SIGTERM, _stop)
    try:
        return _load_and_serve(config, bound, started)
    except (_Stopped, KeyboardInterrupt) as end:
        from fastrender.server import sockets

        # Here, since the interpreter would not end well beside the thread that loads.
        sockets.release(config, bound)
        os._exit(0 if isinstance(end, _Stopped) else _INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)


def _load_and_serve(config: "RenderConfig", bound: "socket.socket", started: float) -> int:
    # The native half loads without the interpreter's lock, while the server's modules do.
    import threading

    loading = _Loading(config)
    thread = threading.Thread(target=loading.run, daemon=True)
    thread.start()
    from fastrender.server.serve import serve

    thread.join()
    return serve(config, loading.result(), bound, started)


class _Loading:
    """A renderer that is being loaded on another thread."""

    def __init__(self, config: "RenderConfig") -> None:
        self._config = config
        self._renderer: Renderer | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._renderer = load_renderer(self._config)
        except BaseException as error:
            self._error = error

    def result(self) -> "Renderer":
        if self._renderer is None:
            raise self._error or RuntimeError("loading ended with neither a renderer nor an error")
        return self._renderer


def _render(words: Sequence[str]) -> int:
    line = _parse("render", words, _add_render_options)
    if isinstance(line, int):
        return line
    from fastrender import batch

    try:
        with batch.open_source(line.options.input) as source:
            batch.refuse_same_file(source, line.options.output)
            renderer = load_renderer(line.config)
            with batch.open_sink(line.options.output) as sink:
                failures = batch.render_lines(
                    renderer,
                    source,
                    sink,
                    route=line.options.route,
                    most_bytes=line.config.max_request_bytes,
                    progress=batch.Progress(sys.stderr, source),
                    threads=line.config.renderer_num_workers,
                )
    except BrokenPipeError:
        # Who reads has seen enough.
        return _BROKEN_PIPE
    except (ValueError, OSError) as error:
        return _complain(str(error), _FAILED)
    return _complain(f"{failures} requests failed", _FAILED) if failures else 0


def _add_render_options(parser: "argparse.ArgumentParser") -> None:
    parser.add_argument("--input", metavar="FILE", default="-", help="Requests; - for stdin.")
    parser.add_argument("--output", metavar="FILE", default="-", help="Answers; - for stdout.")
    parser.add_argument(
        "--route",
        choices=("auto", "chat", "completions"),
        default="auto",
        help="What the requests are; auto tells by their messages.",
    )
