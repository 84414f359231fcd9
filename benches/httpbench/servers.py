"""Start servers, ask them, see what they use, and stop them whatever happens."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 10.0


class BenchError(Exception):
    """A run that cannot go on; its text says why."""


@dataclass(slots=True)
class Server:
    """One server under test, in a session (and so a process group) of its own."""

    name: str
    command: str
    log: Path
    port: int = 0
    start_seconds: list[float] = field(default_factory=list)
    idle_rss: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, model: str, path: str, body: bytes, limit: float) -> None:
        """Start, and wait until a render request is answered; that time is the start-up time."""
        self.port = _free_port()
        try:
            arguments = shlex.split(self.command.format(model=shlex.quote(model), port=self.port))
        except (KeyError, IndexError, ValueError) as error:
            raise BenchError(
                f"the command of {self.name} may hold {{model}} and {{port}}, not {error}"
            ) from error
        began = time.monotonic()
        with self.log.open("ab") as log:
            try:
                self.process = subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise BenchError(f"{self.name} does not start: {error}") from error
        while True:
            status = self._try_post(path, body)
            elapsed = time.monotonic() - began
            if status == 200:
                break
            if status is not None:
                raise BenchError(f"{self.name} answers {status} to a render request")
            if elapsed > limit:
                raise BenchError(
                    f"{self.name} is not ready in {limit:.0f} s; its log ends:\n{self._log_tail()}"
                )
            self.check_alive()
            time.sleep(0.01)
        self.start_seconds.append(elapsed)
        self.idle_rss = self.rss()

    def check_alive(self) -> None:
        """Raise when the server has ended."""
        if self.process is None or self.process.poll() is not None:
            raise BenchError(f"{self.name} has ended by itself; its log ends:\n{self._log_tail()}")

    def stop(self) -> None:
        """End the server and all that it started."""
        if self.process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(_STOP_SECONDS)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.process.wait(_STOP_SECONDS)
        self.process = None

    def post(self, path: str, body: bytes) -> bytes:
        """The answer to one request; any status but 200 is an error."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(f"{self.name} does not answer: {error!r}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise BenchError(
                f"{self.name} answers {response.status}: {answer[:300].decode(errors='replace')}"
            )
        return answer

    def token_ids(self, path: str, body: bytes) -> list[int]:
        """Prompt ids of one rendered request."""
        ids: list[int] = json.loads(self.post(path, body))["token_ids"]
        return ids

    def _try_post(self, path: str, body: bytes) -> int | None:
        """The status of one request, or nothing while the server does not serve it yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return None if response.status == 503 else response.status

    def cpu_seconds(self) -> float:
        """CPU time of the whole process tree since its start, children that have ended included."""
        ticks = 0
        for pid in self._tree():
            fields = _stat(pid)
            # utime, stime, cutime, cstime: fields 14 to 17 of proc(5); ours begin with the third.
            ticks += sum(int(value) for value in fields[11:15])
        return ticks / _TICKS

    def rss(self) -> int:
        """Resident bytes of the whole process tree; what processes share counts for each."""
        pages = 0
        for pid in self._tree():
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
        return pages * os.sysconf("SC_PAGE_SIZE")

    def settle(self, limit: float) -> None:
        """Wait until the server has no work left, for `limit` seconds at most."""
        deadline = time.monotonic() + limit
        before = self.cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(0.1)
            now = self.cpu_seconds()
            if now - before <= 0.01:
                return
            before = now

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2_000:]

    def _tree(self) -> list[int]:
        """The server's process and all below it."""
        assert self.process is not None
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (fields := _stat(int(entry.name))):
                parents[int(entry.name)] = int(fields[1])
        tree = [self.process.pid]
        for pid in tree:
            tree += [child for child, parent in parents.items() if parent == pid]
        return tree


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty when the process is gone."""
    try:
        # The command's name, in parentheses, may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
