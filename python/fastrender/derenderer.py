"""`Derenderer`: engines' tokens to finished answers, whole and streamed, in process."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Self, overload

from fastrender._native import DerenderStream as NativeStream
from fastrender.config import EMBEDDED_MODEL, RenderConfig
from fastrender.renderer import Body, Renderer, encoded

_ROUTES = {"chat": "chat_derender", "completions": "completions_derender"}


class Derenderer:
    """Reads engines' answers for one model; any number of threads may use it at once.

    Bytes (or a bytearray, or a memoryview) in give bytes out: JSON, as the server's routes answer.
    A dict in gives a dict out.

    >>> derenderer = Derenderer()
    >>> ids = derenderer.renderer.tokenize({"prompt": "Hello"})["tokens"]
    >>> choice = {"index": 0, "token_ids": ids}
    >>> answer = derenderer.derender(
    ...     "chat", {"generate_response": {"request_id": "r", "choices": [choice]}}
    ... )
    >>> answer["choices"][0]["message"]["content"]
    'Hello'

    Raises what `Renderer` does, and `RequestError` for a body that has no answer.
    """

    def __init__(self, model: str | os.PathLike[str] = EMBEDDED_MODEL, **settings: Any) -> None:
        """Load `model`, a folder or a hub id; `settings` are those of `RenderConfig`."""
        self.renderer = Renderer(model, **settings)

    @classmethod
    def from_config(cls, config: RenderConfig) -> Self:
        """Load the model that `config` names."""
        return cls.from_renderer(Renderer.from_config(config))

    @classmethod
    def from_renderer(cls, renderer: Renderer) -> Self:
        """For the answers to what `renderer` renders; nothing is loaded twice."""
        derenderer = cls.__new__(cls)
        derenderer.renderer = renderer
        return derenderer

    @overload
    def derender(self, route: str, body: Body) -> bytes: ...
    @overload
    def derender(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]: ...
    def derender(self, route: str, body: Body | Mapping[str, Any]) -> bytes | dict[str, Any]:
        """Serve one body of `route` (`chat`, `completions`): an answer, or a stream's chunk."""
        answer = self.renderer.render(_native_route(route), encoded(body))
        if not isinstance(body, Mapping):
            return answer
        fields: dict[str, Any] = json.loads(answer)
        return fields

    def stream(
        self, request: Body | Mapping[str, Any] | None = None, *, route: str = "chat"
    ) -> "DerenderStream":
        """Begin a stream, whose state stays here.

        `request` is the body of a streamed derender request without chunk and state: `chat_request`
        (or `completion_request`), `prompt_token_ids`, `prompt_tokens`, `model`; all may be absent
        where no parser is configured.
        """
        return DerenderStream(self.renderer, route, {} if request is None else request)


class DerenderStream:
    """One streamed answer: tokens in, deltas out. For one thread at a time."""

    def __init__(self, renderer: Renderer, route: str, request: Body | Mapping[str, Any]) -> None:
        """As `Derenderer.stream`."""
        self.native = NativeStream(renderer.native, _native_route(route), encoded(request))

    def push(
        self, token_ids: Iterable[int], *, finish_reason: str | None = None, index: int = 0
    ) -> list[dict[str, Any]]:
        """The deltas that these tokens of choice `index` come to; none while all is held back.

        A delta has what it adds: `role`, `content`, `reasoning`, `tool_calls`, or `text` for
        completions; the last one `finish_reason`, and `stop_reason` if a stop string ended it.
        `finish_reason` is the engine's, with the last tokens.
        """
        answer = self.native.push(list(token_ids), finish_reason=finish_reason, index=index)
        return _deltas(answer)

    def finish(self, finish_reason: str = "stop") -> list[dict[str, Any]]:
        """The last deltas, of what was held back; none for choices that have ended."""
        answer = self.native.finish(finish_reason)
        return [] if answer is None else _deltas(answer)


def _native_route(route: str) -> str:
    if route not in _ROUTES:
        raise ValueError(f"unknown route `{route}`; known: {', '.join(_ROUTES)}")
    return _ROUTES[route]


def _deltas(chunk: bytes) -> list[dict[str, Any]]:
    deltas = []
    for choice in json.loads(chunk)["choices"]:
        delta = choice.get("delta")
        if delta is None:
            delta = {"text": choice["text"] or None}
        ends = {key: choice.get(key) for key in ("finish_reason", "stop_reason")}
        told = {key: value for key, value in {**delta, **ends}.items() if value is not None}
        if told:
            deltas.append(told)
    return deltas
