"""Real servers for tests: a process of its own, found by the line that it logs."""

import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import httpx

_SCRIPT = pathlib.Path(__file__).with_name("serve_stand_in.py")
_PACKAGE = pathlib.Path(__file__).parents[2] / "python"
_START_SECONDS = 30


@dataclasses.dataclass
class Server:
    process: subprocess.Popen[str]
    url: str
    log: list[str]

    def wait(self, seconds: float = 20) -> int:
        return self.process.wait(seconds)

    def logged(self, text: str, seconds: float = 20) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if any(text in line for line in list(self.log)):
                return True
            time.sleep(0.02)
        return False


@contextlib.contextmanager
def starting(
    *flags: str, command: Sequence[str] = (str(_SCRIPT),), **environment: str
) -> Iterator[Server]:
    """A server that may not answer yet, or ever; ended with the block."""
    process = subprocess.Popen(
        [sys.executable, *command, "--host", "127.0.0.1", "--port", "0", *flags],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_PACKAGE), **environment},
    )
    server = Server(process, "", [])
    reader = threading.Thread(target=_follow, args=(process, server.log), daemon=True)
    reader.start()
    try:
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(10)


@contextlib.contextmanager
def serving(
    *flags: str, command: Sequence[str] = (str(_SCRIPT),), **environment: str
) -> Iterator[Server]:
    """A server that answers, ended with the block."""
    with starting(*flags, command=command, **environment) as server:
        assert server.logged("ready in", _START_SECONDS), "".join(server.log)
        found = re.search(r" at (\S+) \(", "".join(server.log))
        assert found is not None
        server.url = found[1]
        yield server


def _follow(process: subprocess.Popen[str], log: list[str]) -> None:
    assert process.stderr is not None
    with process.stderr as lines:
        for line in lines:
            log.append(line)


def client(server: Server) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=20)
