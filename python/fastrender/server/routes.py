"""The routes beside rendering, and what is answered where there is none."""

import functools
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fastrender.config import RenderConfig
from fastrender.server.answers import Answer, internal_error, overloaded, refusal
from fastrender.server.derender_stream import STREAM_ROUTES
from fastrender.server.interface import Renderer
from fastrender.server.metrics import Metrics
from fastrender.server.openapi import describe
from fastrender.server.scale_out import ABORT, EMBEDDINGS, GENERATE, SCALE_OUT
from fastrender.version import WIRE_VERSION, own_version

if TYPE_CHECKING:
    from fastrender.engine.interface import Engine
    from fastrender.server.exposition import Exposition

# Probes and the like, which vLLM keeps out of the metrics too.
UNCOUNTED = frozenset(["/metrics", "/health", "/load", "/ping", "/version"])
# Known to OpenAI's or vLLM's clients, but another server's business: route to what serves it here.
_ELSEWHERE = {
    "/v1/chat/completions": "/v1/chat/completions/render",
    "/v1/completions": "/v1/completions/render",
    "/inference/v1/generate": None,
    "/inference/v1/abort_requests": None,
    "/v1/embeddings": None,
    "/v1/responses": None,
    "/v1/messages": None,
}
# Routes of vLLM's renderer that this version lacks.
_LACKING = frozenset(["/v1/messages/render", "/v1/responses/render"])


def paths_served(config: RenderConfig) -> list[str]:
    """Paths of the routes here, as metrics name them."""
    paths = ["/v1/models", "/invocations", "/kv_event_sources", *STREAM_ROUTES]
    if config.generates:
        paths += ["/v1/chat/completions", "/v1/completions", GENERATE, ABORT, EMBEDDINGS]
    if config.enable_fastapi_docs:
        paths.append("/openapi.json")
    if config.enable_tokenizer_info_endpoint:
        paths.append("/tokenizer_info")
    return paths


def build_router(
    renderer: Renderer,
    config: RenderConfig,
    metrics: Metrics,
    *,
    engine: "Engine | None",
    posts: Mapping[str, ASGIApp],
    gets: Mapping[str, ASGIApp],
    publish: Callable[[], None],
) -> Starlette:
    """The Starlette app; `posts` has the hot routes too, so that a wrong method is known."""
    operations = Operations(renderer, config, metrics, engine, publish)
    routes = [
        *(Route(path, route, methods=["POST"]) for path, route in posts.items()),
        *(Route(path, route, methods=["GET"]) for path, route in gets.items()),
        Route("/v1/models", operations.models),
        Route("/health", operations.alive),
        Route("/ping", operations.ready, methods=["GET", "POST"]),
        Route("/version", operations.version),
        Route("/load", operations.load),
        Route("/kv_event_sources", operations.kv_event_sources),
        Route("/invocations", operations.invocations, methods=["POST"]),
        Route("/metrics{rest:path}", operations.expose),
    ]
    if config.hides_scale_out:
        routes += [Route(path, operations.hidden, methods=["POST"]) for path in sorted(SCALE_OUT)]
    if config.enable_fastapi_docs:
        routes.append(Route("/openapi.json", operations.openapi))
    if config.enable_tokenizer_info_endpoint:
        routes.append(Route("/tokenizer_info", operations.tokenizer_info))
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _http_error, Exception: _unexpected_error},
    )
    app.router.redirect_slashes = False
    return app


class Operations:
    """Handlers of the routes that do not render."""

    def __init__(
        self,
        renderer: Renderer,
        config: RenderConfig,
        metrics: Metrics,
        engine: "Engine | None",
        publish: Callable[[], None],
    ) -> None:
        """Answer for one renderer and its engine; `publish` brings `metrics` up to date."""
        self._engine = engine
        self._renderer = renderer
        self._config = config
        self._metrics = metrics
        self._publish = publish

    async def models(self, request: Request) -> Response:
        """The served names, as OpenAI's model list."""
        created = int(time.time())
        spec = self._renderer.spec
        cards = [
            {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": "vllm",
                "root": spec.name,
                "parent": None,
                "max_model_len": spec.max_model_len,
                "permission": [_permission(created)],
            }
            for name in spec.served_names
        ]
        return JSONResponse({"object": "list", "data": cards})

    async def alive(self, request: Request) -> Response:
        """200 and nothing else."""
        return Response()

    async def ready(self, request: Request) -> Response:
        """The same, or 503 while no engine would serve a request."""
        if self._engine is None or await self._engine.healthy():
            return Response()
        return _response(overloaded("no engine answers"), {"retry-after": "1"})

    async def hidden(self, request: Request) -> Response:
        """A route of tokens on a server that was not told to have them."""
        text = "the routes of tokens are off; start the server with --enable-scale-out to have them"
        return _response(refusal(403, "PermissionDeniedError", text))

    async def version(self, request: Request) -> Response:
        """The version of vLLM whose wire this is, where its clients look for it, and our own."""
        return JSONResponse({"version": WIRE_VERSION, "fastrender": own_version()})

    async def load(self, request: Request) -> Response:
        """What vLLM's renderer says, which tracks no load here either."""
        return JSONResponse({"server_load": 0})

    async def kv_event_sources(self, request: Request) -> Response:
        """None: there is no cache to send events."""
        return JSONResponse({})

    async def invocations(self, request: Request) -> Response:
        """SageMaker's one route, which needs to know what kind of request it gets."""
        text = "a renderer takes no requests of this route's kinds; use the /render routes"
        return _response(refusal(400, "BadRequestError", text))

    async def expose(self, request: Request) -> Response:
        """Prometheus text."""
        self._publish()
        text, content_type = self._exposition.text()
        return Response(text, headers={"content-type": content_type})

    @functools.cached_property
    def _exposition(self) -> "Exposition":
        # Imported at the first scrape, since it takes a good part of the time to start.
        from fastrender.server.exposition import Exposition

        return Exposition(self._metrics, alone=self._config.workers == 1)

    async def openapi(self, request: Request) -> Response:
        """The routes that there are, for machines."""
        return JSONResponse(describe(self._config))

    async def tokenizer_info(self, request: Request) -> Response:
        """How the tokenizer is set up."""
        return Response(self._renderer.tokenizer_info(), media_type="application/json")


def _permission(created: int) -> dict[str, Any]:
    return {
        "id": f"modelperm-{uuid.uuid4().hex[:16]}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown routes and wrong methods, in the envelope that every other error has."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path, method = request.url.path, request.method
    if status == 405:
        text = f"the route `{_shown(path)}` does not take {_shown(method)}"
        answer = refusal(405, "MethodNotAllowedError", text)
    elif path in _LACKING:
        text = f"this version of the renderer does not serve `{path}`"
        answer = refusal(501, "NotImplementedError", text)
    elif path in _ELSEWHERE:
        here = _ELSEWHERE[path]
        text = f"`{path}` is not served here"
        text += f": it needs an engine; POST to {here} for the tokens of a request" if here else ""
        answer = refusal(404, "NotFoundError", text)
    else:
        text = f"there is no route `{_shown(path)}`; /openapi.json lists those that there are"
        answer = refusal(404, "NotFoundError", text)
    headers = getattr(error, "headers", None) or {}
    return _response(answer, headers)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    return _response(internal_error())


def _shown(text: str) -> str:
    """A client's text, cut to what a message needs."""
    return text if len(text) <= 100 else text[:100] + "…"


def _response(answer: Answer, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        answer.body, answer.status, media_type="application/json", headers=dict(headers or {})
    )
