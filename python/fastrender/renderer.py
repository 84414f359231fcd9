"""`Renderer`: the library's face, and what the server and the batch command render with."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Self, overload

from fastrender import model_folder
from fastrender._native import Pending
from fastrender._native import Renderer as NativeRenderer
from fastrender.config import EMBEDDED_MODEL, RenderConfig
from fastrender.errors import request_error
from fastrender.model_folder import ModelFolder, ModelSpec


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

    Bytes in give bytes out (JSON, as the server's routes answer); a dict in gives mappings out.

    >>> renderer = Renderer()
    >>> answer = renderer.render_chat({"messages": [{"role": "user", "content": "Hi"}]})
    >>> len(answer["token_ids"]) > 0
    True

    Raises `ModelFolderError` or `SetupError` (both `ValueError`) for a model that cannot be served,
    and `RequestError`, with the server's status and error body, for a request that cannot.
    """

    def __init__(self, model: str = EMBEDDED_MODEL, **settings: Any) -> None:
        """Load `model`, a folder or a hub id; `settings` are those of `RenderConfig`."""
        self._open(RenderConfig(model=model, **settings))

    @classmethod
    def from_config(cls, config: RenderConfig) -> Self:
        """Load the model that `config` names."""
        renderer = cls.__new__(cls)
        renderer._open(config)
        return renderer

    def _open(self, config: RenderConfig) -> None:
        self.config = config
        self.folder: ModelFolder = model_folder.load(config)
        self.native = NativeRenderer(
            self.folder.render_spec(config.native_settings(self.folder.spec.chat_templates)),
            self.folder.tokenizer_json,
        )

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
        return json.dumps(info, ensure_ascii=False).encode()

    def render(self, route: str, body: bytes, request_id: str | None = None) -> bytes:
        """Serve one body of `route` (`chat`, `completions`, `tokenize`, `detokenize`).

        `request_id` goes before the body's own, as the header `X-Request-Id` does.
        """
        return _finished(self.native.begin(route, body, request_id))

    def render_short(self, route: str, body: bytes, request_id: str | None = None) -> bytes | None:
        """As `render`, or `None`, at once, for more than half a millisecond of work.

        For callers that hold others up meanwhile, such as an event loop.
        """
        answer = self.native.begin_short(route, body, request_id)
        return None if answer is None else _finished(answer)

    @overload
    def render_chat(self, request: bytes, *, request_id: str | None = None) -> bytes: ...
    @overload
    def render_chat(
        self, request: Mapping[str, Any], *, request_id: str | None = None
    ) -> RenderedRequest: ...
    def render_chat(
        self, request: bytes | Mapping[str, Any], *, request_id: str | None = None
    ) -> bytes | RenderedRequest:
        """Render a chat request (`/v1/chat/completions/render`)."""
        if isinstance(request, bytes):
            return self.render("chat", request, request_id)
        return RenderedRequest(self.render("chat", _encoded(request), request_id))

    @overload
    def render_completion(self, request: bytes, *, request_id: str | None = None) -> bytes: ...
    @overload
    def render_completion(
        self, request: Mapping[str, Any], *, request_id: str | None = None
    ) -> list[dict[str, Any]]: ...
    def render_completion(
        self, request: bytes | Mapping[str, Any], *, request_id: str | None = None
    ) -> bytes | list[dict[str, Any]]:
        """Render a completion request (`/v1/completions/render`): one answer for each prompt."""
        if isinstance(request, bytes):
            return self.render("completions", request, request_id)
        answers: list[dict[str, Any]] = json.loads(
            self.render("completions", _encoded(request), request_id)
        )
        return answers

    def tokenize(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Token ids of a prompt or of messages (`/tokenize`)."""
        answer: dict[str, Any] = json.loads(self.render("tokenize", _encoded(request)))
        return answer

    def detokenize(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Text of token ids (`/detokenize`)."""
        answer: dict[str, Any] = json.loads(self.render("detokenize", _encoded(request)))
        return answer


def _finished(answer: bytes | Pending) -> bytes:
    if isinstance(answer, Pending):
        kinds = ", ".join(dict.fromkeys(item.modality for item in answer.media))
        message = f"this version of fastrender renders text only; the request holds {kinds}"
        raise request_error(message, "BadRequestError", answer.media[0].modality, 400)
    return answer


def _encoded(request: Mapping[str, Any]) -> bytes:
    # Escapes carry what UTF-8 cannot (lone surrogates), so that the core says what is wrong.
    return json.dumps(request).encode()
