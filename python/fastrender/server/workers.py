"""Several processes on one socket: starting them, starting them anew, and ending them."""

import dataclasses
import logging
import multiprocessing
import multiprocessing.connection
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType

from fastrender.config import RenderConfig
from fastrender.server import serve
from fastrender.server.interface import Renderer
from fastrender.server.shared_file import SharedFile

Load = Callable[[RenderConfig], Renderer]

# A worker that fails again and again is started anew at this pace.
_RESTART_SECONDS = 1.0
_KILL_SECONDS = 5.0
# The first signal drains, the second quits, and the third does not ask.
_LAST_SIGNAL = 3

logger = logging.getLogger("fastrender.server")


@dataclasses.dataclass(slots=True)
class _Worker:
    process: BaseProcess
    reports: Connection
    slot: int


def supervise(config: RenderConfig, load: Load, bound: socket.socket, started: float) -> int:
    """Serve with `config.workers` processes until told to stop; the exit code."""
    # It has no name, so nothing is left of it however the processes end.
    with tempfile.TemporaryFile(prefix="fastrender-metrics-") as metrics:
        return _Supervisor(config, load, bound, SharedFile(metrics.fileno())).run(started)


class _Supervisor:
    def __init__(
        self, config: RenderConfig, load: Load, bound: socket.socket, metrics: SharedFile
    ) -> None:
        self._config = config
        self._load = load
        self._bound = bound
        self._metrics = metrics
        # Not forked, since threads of a library in this process would be torn.
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, _Worker] = {}
        self._signals = 0

    def run(self, started: float) -> int:
        # Signals interrupt waiting through this pipe, whichever call waits.
        wake_up, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        for slot in range(self._config.workers):
            self._start(slot)
        if (backend := self._wait_until_ready(wake_up)) is None:
            return self._end(wake_up) if self._signals else self._fail()
        serve.log_start(self._config, self._bound, backend, started)
        while not self._signals:
            for worker in self._dead(wake_up):
                logger.error("a worker died (%s); it is started anew", _how(worker.process))
                time.sleep(_RESTART_SECONDS)
                if not self._signals:
                    self._start(worker.slot)
        return self._end(wake_up)

    def _start(self, slot: int) -> None:
        reports, reporter = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work,
            args=(self._config, self._load, self._bound, self._metrics, slot, reporter),
            name=f"fastrender-worker-{slot}",
        )
        process.start()
        reporter.close()
        self._workers[slot] = _Worker(process, reports, slot)

    def _wait_until_ready(self, wake_up: socket.socket) -> str | None:
        """The workers' backend once all are ready; None if one is not going to be."""
        waiting = {worker.reports: worker for worker in self._workers.values()}
        backend = ""
        while waiting and not self._signals:
            for ready in multiprocessing.connection.wait([*waiting, wake_up]):
                if not isinstance(ready, Connection):
                    _empty(wake_up)
                    continue
                del waiting[ready]
                try:
                    kind, text = ready.recv()
                except EOFError:
                    kind, text = "failed", "a worker died while it started"
                if kind == "failed":
                    logger.critical("%s", text)
                    return None
                backend = text
        return None if self._signals else backend

    def _dead(self, wake_up: socket.socket) -> list[_Worker]:
        """Workers that died, once there are some or a signal has come."""
        sentinels = {worker.process.sentinel: worker for worker in self._workers.values()}
        ready = multiprocessing.connection.wait([*sentinels, wake_up])
        if wake_up in ready:
            _empty(wake_up)
        dead = [worker for sentinel, worker in sentinels.items() if sentinel in ready]
        for worker in dead:
            worker.process.join()
            worker.reports.close()
            del self._workers[worker.slot]
        return dead

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _end(self, wake_up: socket.socket) -> int:
        """Pass signals on until all workers are gone; 0 if all of them ended well."""
        code = 0
        passed_on = 0
        while self._workers:
            while passed_on < self._signals:
                passed_on += 1
                for worker in self._workers.values():
                    process = worker.process
                    (process.terminate if passed_on < _LAST_SIGNAL else process.kill)()
            for worker in self._dead(wake_up):
                # SIGTERM while it still loads is a good end too.
                if worker.process.exitcode not in (0, -signal.SIGTERM):
                    code = 1
        return code

    def _fail(self) -> int:
        for worker in self._workers.values():
            worker.process.terminate()
        deadline = time.monotonic() + _KILL_SECONDS
        for worker in self._workers.values():
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        return 1


def _work(
    config: RenderConfig,
    load: Load,
    bound: socket.socket,
    metrics: SharedFile,
    slot: int,
    reporter: Connection,
) -> None:
    """A worker's whole life."""
    # Ctrl-C reaches the whole group; the parent passes it on once, as SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from fastrender.logs import configure_logging

    configure_logging(config)
    parent = multiprocessing.parent_process()
    try:
        renderer = load(config)
        code = serve.run(
            config,
            renderer,
            bound,
            on_start=lambda: reporter.send(("ready", renderer.native.backend)),
            orphaned=None if parent is None else parent.sentinel,
            metrics_file=metrics.descriptor,
            slot=slot,
        )
    except (ValueError, OSError) as error:
        # Also what shows only when serving begins, such as a middleware that there is not.
        reporter.send(("failed", str(error)))
        raise SystemExit(1) from None
    raise SystemExit(serve.leave(code))


def _how(process: BaseProcess) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _empty(wake_up: socket.socket) -> None:
    wake_up.recv(64)
