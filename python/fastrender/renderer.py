"""`Renderer`: the library's face, and what the server and the batch command render with."""

import functools
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload

from fastrender import model_folder
from fastrender._native import DerenderStream, Pending
from fastrender._native import Renderer as NativeRenderer
from fastrender.auto_parsers import parsers_found
from fastrender.config import EMBEDDED_MODEL, RenderConfig
from fastrender.errors import request_error
from fastrender.model_folder import ModelFolder, ModelSpec

if TYPE_CHECKING:
    from fastrender.images.pipeline import ImagePipeline, Job

_IMAGE_STATS = (
    "image_cache_hits",
    "image_cache_misses",
    "image_cache_bytes",
    "image_cache_entries",
)

# Of bodies whose images are worth no thread of their own where their pixels are not wanted.
_MOST_PLANNED_BYTES = 4 << 20

Body: TypeAlias = bytes | bytearray | memoryview


class RenderedRequest(Mapping[str, Any]):
    """A GenerateRequest as a read-only mapping; its JSON, `body`, is read on first use.

    Keys and values are the wire's (vLLM's `token_in_token_out/protocol.py`): `token_ids` is a list
    of ids, `sampling_params` an object, and so on.
    """

    __slots__ = ("_fields", "body")

    def __init__(self, body: bytes) -> None:
        """Wrap the JSON object `body`."""
        self.body = body
        self._fields: dict[str, Any] | None = None

    def _read(self) -> dict[str, Any]:
        if self._fields is None:
            self._fields = json.loads(self.body)
        return self._fields

    def __getitem__(self, key: str) -> Any:
        """The value of a field."""
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        """The fields, in the wire's order."""
        return iter(self._read())

    def __len__(self) -> int:
        """How many fields there are."""
        return len(self._read())

    def __repr__(self) -> str:
        """The beginning of the JSON."""
        return f"RenderedRequest({self.body[:200]!r}{'…' if len(self.body) > 200 else ''})"


class Renderer:
    """Renders OpenAI requests for one model; any number of threads may use it at once.

    Bytes (or a bytearray, or a memoryview) in give bytes out: JSON, as the server's routes answer.
    A dict in gives mappings out. JSON as a string is refused: encode it.

    >>> renderer = Renderer()
    >>> answer = renderer.render_chat({"messages": [{"role": "user", "content": "Hi"}]})
    >>> len(answer["token_ids"]) > 0
    True

    Raises `ModelFolderError` or `SetupError` (both `ValueError`) for a model that cannot be served,
    and `RequestError`, with the server's status and error body, for a request that cannot.
    """

    def __init__(self, model: str | os.PathLike[str] = EMBEDDED_MODEL, **settings: Any) -> None:
        """Load `model`, a folder or a hub id; `settings` are those of `RenderConfig`.

        `ConfigError`, a `ValueError`, names a setting whose value cannot be.
        """
        settings["model"] = model
        self._open(RenderConfig(**settings))

    @classmethod
    def from_config(cls, config: RenderConfig) -> Self:
        """Load the model that `config` names."""
        renderer = cls.__new__(cls)
        renderer._open(config)
        return renderer

    def _open(self, config: RenderConfig) -> None:
        self.config = config
        self.folder: ModelFolder = model_folder.load(config)
        settings = config.native_settings(self.folder.spec.chat_templates)
        settings |= parsers_found(self.folder, settings)
        self.native = NativeRenderer(self.folder.render_spec(settings), self.folder.tokenizer_json)
        if config.allowed_local_media_path is not None or config.media_use_proxies:
            # What is wrong with these is to be said now.
            self.images  # noqa: B018

    @property
    def spec(self) -> ModelSpec:
        """What the model folder means."""
        return self.folder.spec

    def tokenizer_info(self) -> bytes:
        """The answer of `GET /tokenizer_info`: tokenizer_config.json, and what is made of it."""
        written = self.folder.tokenizer_path.with_name("tokenizer_config.json")
        config = json.loads(written.read_bytes()) if written.exists() else {}
        info = {
            **config,
            "special_tokens": dict(self.spec.special_tokens),
            "chat_template": self.spec.chat_templates.get("default"),
        }
        # What UTF-8 cannot hold (a lone surrogate) is escaped, as JSON does too.
        return json.dumps(info, ensure_ascii=False).encode(errors="backslashreplace")

    @functools.cached_property
    def images(self) -> "ImagePipeline | None":
        """What processes images, if the model takes any; made when first asked for."""
        from fastrender.images import ImagePipeline

        processing = self.folder.image
        if processing is None:
            return None
        return ImagePipeline(processing, self.config, self.spec.max_model_len)

    def finish_loading(self) -> None:
        """Wait for what loads in the background, so that no request pays for it."""
        self.native.finish_loading()
        self.images  # noqa: B018

    def stats(self) -> dict[str, int]:
        """Counters and sizes of all caches."""
        images = self.__dict__.get("images")
        cache = images.cache.stats() if images else dict.fromkeys(_IMAGE_STATS, 0)
        return {**self.native.stats(), **cache}

    def begin(self, route: str, body: bytes, request_id: str | None = None) -> bytes | Pending:
        """Serve one body of `route`: `chat`, `completions`, `tokenize`, `detokenize`, and, for the
        answers of engines, `chat_derender`, `completions_derender`.

        The answer, or a request that waits for images, which `complete` goes on with. `request_id`
        goes before the body's own, as the header `X-Request-Id` does.
        """
        begun = self.native.begin(route, body, request_id)
        return begun if isinstance(begun, bytes) else self._planned(begun, body)

    def begin_short(
        self, route: str, body: bytes, request_id: str | None = None
    ) -> bytes | Pending | None:
        """As `begin`, or `None`, at once, for more than half a millisecond of work.

        For callers that hold others up meanwhile, such as an event loop.
        """
        begun = self.native.begin_short(route, body, request_id)
        if begun is None or isinstance(begun, bytes):
            return begun
        return self._planned(begun, body)

    def _planned(self, pending: Pending, body: bytes) -> bytes | Pending:
        """The answer, if what images' headers say is enough for it, and short work to read."""
        if not pending.omits_payload or len(body) > _MOST_PLANNED_BYTES or self.images is None:
            return pending
        answer = self.images.plan(pending)
        return pending if answer is None else bytes(answer)

    def derender_stream(self, route: str, body: bytes) -> DerenderStream:
        """Begin a stream of `route`: engines' chunks in, a client's chunks out, both JSON."""
        return DerenderStream(self.native, route, body)

    def complete(self, pending: Pending) -> "Job":
        """Work on a request's images in the background; the job's `answer` is a future.

        `BusyError` if too many requests wait for images already.
        """
        if self.images is None:
            raise request_error(
                "this model takes no images", "BadRequestError", pending.media[0].modality, 400
            )
        return self.images.start(pending)

    def render(self, route: str, body: bytes, request_id: str | None = None) -> bytes:
        """Serve one body whole, its images too, as `begin` and `complete` do in two steps."""
        answer = self.begin(route, body, request_id)
        if isinstance(answer, bytes):
            return answer
        # A copy only of what is long: bytes are returned as they are.
        return bytes(self.complete(answer).answer.result())

    @overload
    def render_chat(self, request: Body, *, request_id: str | None = None) -> bytes: ...
    @overload
    def render_chat(
        self, request: Mapping[str, Any], *, request_id: str | None = None
    ) -> RenderedRequest: ...
    def render_chat(
        self, request: Body | Mapping[str, Any], *, request_id: str | None = None
    ) -> bytes | RenderedRequest:
        """Render a chat request (`/v1/chat/completions/render`)."""
        answer = self.render("chat", encoded(request), request_id)
        return RenderedRequest(answer) if isinstance(request, Mapping) else answer

    @overload
    def render_completion(self, request: Body, *, request_id: str | None = None) -> bytes: ...
    @overload
    def render_completion(
        self, request: Mapping[str, Any], *, request_id: str | None = None
    ) -> list[dict[str, Any]]: ...
    def render_completion(
        self, request: Body | Mapping[str, Any], *, request_id: str | None = None
    ) -> bytes | list[dict[str, Any]]:
        """Render a completion request (`/v1/completions/render`): one answer for each prompt."""
        answer = self.render("completions", encoded(request), request_id)
        if not isinstance(request, Mapping):
            return answer
        answers: list[dict[str, Any]] = json.loads(answer)
        return answers

    def tokenize(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Token ids of a prompt or of messages (`/tokenize`)."""
        answer: dict[str, Any] = json.loads(self.render("tokenize", encoded(request)))
        return answer

    def detokenize(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Text of token ids (`/detokenize`)."""
        answer: dict[str, Any] = json.loads(self.render("detokenize", encoded(request)))
        return answer


def encoded(request: Body | Mapping[str, Any]) -> bytes:
    """A request as the JSON that the native half reads."""
    if isinstance(request, bytes):
        return request
    if isinstance(request, bytearray | memoryview):
        return bytes(request)
    if not isinstance(request, Mapping):
        raise TypeError(
            f"a request is a mapping, or JSON as bytes, not `{type(request).__name__}`; "
            "encode a string first"
        )
    # Escapes carry what UTF-8 cannot (lone surrogates), so that the core says what is wrong.
    return json.dumps(dict(request)).encode()
