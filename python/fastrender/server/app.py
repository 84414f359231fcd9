"""The ASGI application: what every request passes, and where it goes.

In order: root path, request id, browser preflight, API key, draining, CORS headers, then either a
hot route by a dict look-up or Starlette's router. The path that the key check sees is the one that
is routed by, so that no spelling of a path slips past it.
"""

import asyncio
import time
import uuid
from typing import TYPE_CHECKING

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastrender.config import RenderConfig
from fastrender.server.answers import Answer, overloaded
from fastrender.server.bodies import BodyBudget
from fastrender.server.derender_stream import STREAM_ROUTES, DerenderStreamRoute
from fastrender.server.interface import Renderer
from fastrender.server.keys import ApiKeys
from fastrender.server.metrics import METHODS, OTHER_HANDLER, Layout, Metrics, RequestCounter
from fastrender.server.render import RENDER_ROUTES, RenderRoute
from fastrender.server.routes import UNCOUNTED, build_router, paths_served
from fastrender.server.scale_out import SCALE_OUT
from fastrender.server.work import WorkLane

if TYPE_CHECKING:
    from fastrender.engine.interface import Engine
    from fastrender.server.front import FrontRoute

PROBES = frozenset(["/health", "/ping"])
# Answered while draining: the process lives, though it takes no more work.
LIVENESS = "/health"
_CLOSE = (b"connection", b"close")
_UNAUTHORIZED = Answer(401, b'{"error":"Unauthorized"}')


class Application:
    """The server's ASGI app, for one event loop."""

    def __init__(
        self,
        renderer: Renderer,
        config: RenderConfig,
        *,
        engine: "Engine | None" = None,
        metrics_file: int | None = None,
        slot: int = 0,
    ) -> None:
        """Serve `renderer`, and whole answers with `engine`, which `start` starts.

        With several processes, count in slot `slot` of a shared file.
        """
        self._renderer = renderer
        self._engine = engine
        self._root_path = config.root_path
        self._request_ids = config.enable_request_id_headers
        self._keys = ApiKeys(config.api_key)
        self._lane = WorkLane(config.renderer_num_workers, config.request_queue_limit)
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._draining = False
        layout = Layout(
            (*RENDER_ROUTES, *paths_served(config)), RENDER_ROUTES.values(), renderer.stats()
        )
        self.metrics = Metrics(layout, file=metrics_file, slot=slot, slots=config.workers)
        self._budget = budget = BodyBudget(config.max_buffered_bytes)
        hot = {
            path: RenderRoute(
                path, renderer, config, lane=self._lane, budget=budget, metrics=self.metrics
            )
            for path in RENDER_ROUTES
        }
        posts: dict[str, ASGIApp] = {
            path: DerenderStreamRoute(path, renderer, config, lane=self._lane, budget=budget)
            for path in STREAM_ROUTES
        }
        posts = {**hot, **posts}
        if config.hides_scale_out:
            posts = {path: app for path, app in posts.items() if path not in SCALE_OUT}
        gets: dict[str, ASGIApp] = {}
        self._fronts: dict[str, FrontRoute] = {}
        if engine is not None:
            # Here, since a renderer has no use for them.
            from fastrender.server.front import front_routes
            from fastrender.server.generate import fetch_routes, generate_routes

            if not config.tokens_only:
                self._fronts = front_routes(
                    renderer,
                    engine,
                    config,
                    halves=hot,
                    lane=self._lane,
                    budget=budget,
                    metrics=self.metrics,
                )
                posts |= self._fronts
            if not config.hides_scale_out:
                posts |= generate_routes(engine, config, budget=budget, metrics=self.metrics)
                gets = fetch_routes(engine, config)
        self._hot = {path: route for path, route in hot.items() if path in posts}
        self._at_once: dict[str, RenderRoute] = {}
        self._router = build_router(
            renderer,
            config,
            self.metrics,
            engine=engine,
            posts=posts,
            gets=gets,
            publish=self.publish,
        )
        self._cors = _cors(self._dispatch, config)
        # What adds to every answer, or looks at every request, is done on the usual way.
        plain = self._cors is None and not config.enable_request_id_headers
        if plain and not config.enable_uvicorn_access_log:
            self._at_once = {
                prefix + path: route
                for path, route in self._hot.items()
                for prefix in {"", config.root_path}
            }

    async def start(self) -> None:
        """Start the engine; for the loop that serves."""
        if self._engine is not None:
            await self._engine.start()

    async def stop(self) -> None:
        """Stop it."""
        if self._engine is not None:
            await self._engine.close()

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        return self._in_flight

    @property
    def held_bytes(self) -> int:
        """Bytes of their bodies."""
        return self._budget.held

    def publish(self) -> None:
        """Bring the metrics' states up to date."""
        self.metrics.publish(
            in_flight=self._in_flight,
            queued=self._lane.queue_length,
            native=self._renderer.stats(),
        )

    def drain(self) -> None:
        """From now on answer 503 to whatever is no liveness probe."""
        self._draining = True
        if not self._in_flight:
            self._idle.set()

    async def idle(self) -> None:
        """Return when no request is under way, once draining."""
        await self._idle.wait()

    def close(self) -> None:
        """Take no more work."""
        self._lane.close()

    def answer_at_once(
        self, target: str, authorization: bytes | None, request_id: str | None, body: bytes
    ) -> Answer | None:
        """The answer to a plain POST request, if it is short work and nothing is in its way.

        What this leaves (`None`) goes the usual way through `__call__`, which answers the same.
        """
        route = self._at_once.get(target)
        if route is None or self._draining:
            return None
        if self._keys and not self._keys.admit(authorization or b""):
            return None
        return route.answer_at_once(body, request_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what is no HTTP request is for Starlette."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        self._in_flight += 1
        try:
            path: str = scope["path"]
            root = self._root_path
            if root and (path == root or path.startswith(root + "/")):
                scope["path"] = path = path[len(root) :] or "/"
            if self._request_ids:
                send = _with_request_id(scope, send)
            if self._cors is not None and _is_preflight(scope):
                await self._cors(scope, receive, send)
            elif self._keys and path not in PROBES and not self._keys.admit(_authorization(scope)):
                self.metrics.refuse("unauthorized")
                await _UNAUTHORIZED.send(send)
            elif self._draining and path != LIVENESS:
                self.metrics.refuse("draining")
                answer = overloaded("the server is shutting down")
                await Answer(answer.status, answer.body, [*answer.headers, _CLOSE]).send(send)
            elif self._cors is not None:
                await self._cors(scope, receive, send)
            else:
                await self._dispatch(scope, receive, send)
        finally:
            self._in_flight -= 1
            if self._draining and not self._in_flight:
                self._idle.set()

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        hot = self._hot.get(path) if method == "POST" else None
        if hot is not None:
            await hot(scope, receive, send)
        elif path in UNCOUNTED:
            await self._router(scope, receive, send)
        else:
            # A stream's every chunk would pass through Starlette.
            front = self._fronts.get(path) if method == "POST" else None
            await self._count(front or self._router, scope, receive, send)

    async def _count(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it."""
        started = time.perf_counter()
        status = 500
        size = 0

        async def observe(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await app(scope, receive, observe)
        finally:
            length = dict(scope["headers"]).get(b"content-length", b"")
            self._counter(scope["path"], scope["method"]).count(
                status,
                int(length[:20]) if length.isdigit() else 0,
                size,
                time.perf_counter() - started,
            )

    def _counter(self, path: str, method: str) -> RequestCounter:
        handler = path if path in self.metrics.layout.request_bytes else OTHER_HANDLER
        return self.metrics.requests_of(handler, method if method in METHODS else METHODS[-1])


def _cors(app: ASGIApp, config: RenderConfig) -> CORSMiddleware | None:
    if not config.allowed_origins:
        return None
    return CORSMiddleware(
        app,
        allow_origins=config.allowed_origins,
        allow_methods=config.allowed_methods,
        allow_headers=config.allowed_headers,
        allow_credentials=config.allow_credentials,
    )


def _is_preflight(scope: Scope) -> bool:
    """Whether a browser asks what it may do; it never sends a key along with that."""
    if scope["method"] != "OPTIONS":
        return False
    names = {name for name, _ in scope["headers"]}
    return names >= {b"origin", b"access-control-request-method"}


def _authorization(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value)
    return b""


def _with_request_id(scope: Scope, send: Send) -> Send:
    given = (value for name, value in scope["headers"] if name == b"x-request-id")
    request_id = next(given, None) or uuid.uuid4().hex.encode()

    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"], (b"x-request-id", request_id)]
            message = {**message, "headers": headers}
        await send(message)

    return send_with_id
