"""What the server needs of a renderer, as protocols; `fastrender.renderer.Renderer` has it."""

from collections.abc import Sequence
from typing import Protocol


class NativeRenderer(Protocol):
    """What is told of the native half."""

    @property
    def backend(self) -> str:
        """Name of the tokenizer implementation in use."""
        ...

    def finish_loading(self) -> bool:
        """Wait until what is loaded in the background is there."""
        ...

    def stats(self) -> dict[str, int]:
        """Counters and sizes of the caches."""
        ...


class ModelSpec(Protocol):
    """What `/v1/models` says about a model."""

    @property
    def name(self) -> str:
        """The literal `--model` string."""
        ...

    @property
    def served_names(self) -> Sequence[str]:
        """Names that requests may use."""
        ...

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt and output together."""
        ...


class Renderer(Protocol):
    """A loaded renderer."""

    @property
    def native(self) -> NativeRenderer:
        """The native half."""
        ...

    @property
    def spec(self) -> ModelSpec:
        """The model that it renders for."""
        ...

    def render(self, route: str, body: bytes, request_id: str | None = None, /) -> bytes:
        """The answer's bytes, from any thread; `RequestError` for a request that has none."""
        ...

    def render_short(
        self, route: str, body: bytes, request_id: str | None = None, /
    ) -> bytes | None:
        """As `render`, or `None`, at once, for more work than may hold up an event loop."""
        ...

    def tokenizer_info(self) -> bytes:
        """The answer of `GET /tokenizer_info`."""
        ...
