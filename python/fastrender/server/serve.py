"""Running the app: one process, its event loop, its signals and its end."""

import asyncio
import contextlib
import ctypes
import dataclasses
import functools
import importlib
import inspect
import logging
import os
import pathlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp

from fastrender.config import RenderConfig
from fastrender.server import sockets, tls
from fastrender.server.app import Application
from fastrender.server.connection import Connection
from fastrender.server.interface import Renderer
from fastrender.settings import ConfigError
from fastrender.version import own_version

if TYPE_CHECKING:
    from fastrender.engine.interface import Engine

# Time for answers that are written already to reach slow clients, beyond the drain itself.
_LEAST_FLUSH_SECONDS = 1
_PUBLISH_SECONDS = 1.0
_REFRESH_SECONDS = 5.0

logger = logging.getLogger("fastrender.server")


def serve(config: RenderConfig, renderer: Renderer, bound: socket.socket, started: float) -> int:
    """Serve `renderer` on `bound` until told to stop; the process's exit code."""

    def announce() -> None:
        log_start(config, bound, renderer.native.backend, started)

    return run(config, renderer, bound, on_start=announce)


def started_up(renderer: Renderer, on_start: Callable[[], None]) -> None:
    """Tell that the server answers, and let the rest load."""
    on_start()
    threading.Thread(target=settle, args=(renderer,), daemon=True).start()


def settle(renderer: Renderer) -> None:
    """Wait for what still loads, then give back the memory that loading took.

    Loading a large vocabulary leaves some sixty megabytes of freed but unreturned memory behind.
    """
    renderer.finish_loading()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def leave(code: int) -> int:
    """`code`, if it is 0; otherwise end the process here, without waiting for its threads.

    They may still render what nobody waits for.
    """
    if code:
        logging.shutdown()
        os._exit(code)
    return code


def log_start(config: RenderConfig, bound: socket.socket, backend: str, started: float) -> None:
    """The one line that says what is served where."""
    logger.info(
        "fastrender %s serves %s at %s (tokenizer %s, %d worker%s), ready in %.2f s",
        own_version(),
        config.model,
        sockets.address(config, bound),
        backend,
        config.workers,
        "" if config.workers == 1 else "s",
        time.perf_counter() - started,
    )


def run(
    config: RenderConfig,
    renderer: Renderer,
    bound: socket.socket,
    *,
    on_start: Callable[[], None],
    orphaned: int | None = None,
    metrics_file: int | None = None,
    slot: int = 0,
) -> int:
    """Serve in this process; 0 if every request that was under way at the end was answered.

    Readability of the descriptor `orphaned` means the same as SIGTERM.
    """
    application = Application(
        renderer,
        config,
        engine=engine_of(config, renderer, bound),
        metrics_file=metrics_file,
        slot=slot,
    )
    server = RenderServer(
        _uvicorn_config(config, wrapped(application, config.middleware)),
        application,
        config,
        on_start=lambda: started_up(renderer, on_start),
        orphaned=orphaned,
    )
    server.run(sockets=[bound])
    application.close()
    return server.exit_code


def engine_of(config: RenderConfig, renderer: Renderer, bound: socket.socket) -> "Engine | None":
    """What generates, if whole answers are to be served."""
    if not config.generates:
        return None
    # Here, since a server without engines shall not pay for what talks to them.
    from fastrender.engine import choose

    if config.engine != ("torch",):
        return choose.remote_engine(config)
    if bound.family != socket.AF_UNIX:
        # The real one, which other workers are told.
        config = dataclasses.replace(config, port=bound.getsockname()[1])
    return choose.torch_engine(config, renderer)


def wrapped(app: ASGIApp, middleware: tuple[str, ...]) -> ASGIApp:
    """`app` inside of the middleware at these import paths: classes, or functions as of HTTP."""
    for path in middleware:
        module, _, name = path.rpartition(".")
        try:
            found: Any = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"middleware: there is no `{path}` ({error})") from error
        if isinstance(found, type):
            make: Callable[[ASGIApp], ASGIApp] = found
            app = make(app)
        elif inspect.iscoroutinefunction(found):
            from starlette.middleware.base import BaseHTTPMiddleware

            app = BaseHTTPMiddleware(app, dispatch=found)
        else:
            raise ConfigError(f"middleware: `{path}` is neither a class nor an async function")
    return app


class RenderServer(uvicorn.Server):
    """uvicorn's server, which on SIGTERM answers what is under way before it stops listening."""

    def __init__(
        self,
        uvicorn_config: uvicorn.Config,
        application: Application,
        config: RenderConfig,
        *,
        on_start: Callable[[], None],
        orphaned: int | None,
    ) -> None:
        """Serve `application`, which `uvicorn_config` holds wrapped."""
        super().__init__(uvicorn_config)
        self._application = application
        self._settings = config
        self._on_start = on_start
        self._orphaned = orphaned
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.exit_code = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await self._application.start()
        await super().startup(sockets)
        if self._settings.workers > 1:
            self._tasks.append(asyncio.create_task(self._publish()))
        if self._settings.enable_ssl_refresh and self._settings.ssl_certfile:
            self._tasks.append(asyncio.create_task(self._refresh_tls()))
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, then the engine."""
        await super().shutdown(sockets)
        await self._application.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Drain on the first signal and quit on the second; unlike uvicorn's, raise none anew."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, functools.partial(self._stop, number))
        if self._orphaned is not None:
            loop.add_reader(self._orphaned, self._stop_as_orphan)
        yield

    def _stop_as_orphan(self) -> None:
        if self._orphaned is not None:
            asyncio.get_running_loop().remove_reader(self._orphaned)
        if not self._stopping:
            self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        if self._stopping:
            logger.warning("quitting at once")
            self.exit_code = 128 + number
            self.should_exit = self.force_exit = True
            return
        self._stopping = True
        self._application.drain()
        self._tasks.append(asyncio.create_task(self._drain()))

    async def _drain(self) -> None:
        deadline = time.monotonic() + self._settings.shutdown_timeout
        if self._application.in_flight:
            logger.info("shutting down after %d requests", self._application.in_flight)
        try:
            async with asyncio.timeout(self._settings.shutdown_timeout):
                await self._application.idle()
        except TimeoutError:
            logger.warning("%d requests are cut off", self._application.in_flight)
            self.exit_code = 1
            self.force_exit = True
        left = int(deadline - time.monotonic())
        self.config.timeout_graceful_shutdown = max(left, _LEAST_FLUSH_SECONDS)
        self.should_exit = True

    async def _publish(self) -> None:
        """Keep the states in the shared metrics fresh for the other workers."""
        while True:
            self._application.publish()
            await asyncio.sleep(_PUBLISH_SECONDS)

    async def _refresh_tls(self) -> None:
        """Load the certificate anew when its files change."""
        config = self._settings
        files = [file for file in (config.ssl_certfile, config.ssl_keyfile) if file]
        seen = _changes(files)
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            now = _changes(files)
            if now == seen or self.config.ssl is None:
                continue
            try:
                tls.load_pair(self.config.ssl, files[0], files[-1])
            except (OSError, ConfigError) as error:
                logger.warning("the new TLS files do not load: %s", error)
            else:
                seen = now
                logger.info("loaded the new TLS files")


def _changes(files: list[str]) -> list[float | None]:
    return [pathlib.Path(f).stat().st_mtime if pathlib.Path(f).exists() else None for f in files]


def _uvicorn_config(config: RenderConfig, app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=config.enable_uvicorn_access_log,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=max(1, round(config.timeout_keep_alive)),
        ssl_keyfile=config.ssl_keyfile,
        ssl_certfile=config.ssl_certfile,
        ssl_ca_certs=config.ssl_ca_certs,
        ssl_cert_reqs=config.ssl_cert_reqs,
        ssl_ciphers=config.ssl_ciphers,
    )
