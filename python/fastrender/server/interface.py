"""What the server needs of a renderer, as protocols; `fastrender.renderer.Renderer` has it."""

import concurrent.futures
from collections.abc import Sequence
from typing import Protocol

from fastrender._native import Pending


class NativeRenderer(Protocol):
    """What is told of the native half."""

    @property
    def backend(self) -> str:
        """Name of the tokenizer implementation in use."""
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


class Job(Protocol):
    """Work on the media of a request."""

    @property
    def answer(self) -> concurrent.futures.Future[bytes | memoryview]:
        """The answer's bytes, or why there are none."""
        ...

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        ...


class DerenderStream(Protocol):
    """One streamed answer."""

    @property
    def includes_usage(self) -> bool:
        """Whether the client asked for its usage."""
        ...

    @property
    def tells(self) -> bool:
        """Whether the last chunk tells a client anything."""
        ...

    def stopped(self) -> list[int]:
        """The choices that have met a stop string and not ended."""
        ...

    def push(
        self, token_ids: Sequence[int], /, *, finish_reason: str | None = None, index: int = 0
    ) -> bytes:
        """The client's chunk for these tokens of a choice."""
        ...

    def push_chunk(self, chunk: bytes, /) -> bytes:
        """The client's chunk for one of the engine's; `RequestError` for what is none."""
        ...

    def finish(self, finish_reason: str, /) -> bytes | None:
        """The client's chunk for the end of what has not ended."""
        ...

    def usage_chunk(self) -> bytes:
        """The chunk that tells the usage."""
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

    def finish_loading(self) -> None:
        """Wait until what is loaded in the background is there."""
        ...

    def stats(self) -> dict[str, int]:
        """Counters and sizes of the caches."""
        ...

    def begin(self, route: str, body: bytes, request_id: str | None = None, /) -> bytes | Pending:
        """The answer's bytes, or what waits for media; from any thread.

        `RequestError` for a request that has no answer.
        """
        ...

    def begin_short(
        self, route: str, body: bytes, request_id: str | None = None, /
    ) -> bytes | Pending | None:
        """As `begin`, or `None`, at once, for more work than may hold up an event loop."""
        ...

    def complete(self, pending: Pending, /) -> Job:
        """Go on with what waits for media; `BusyError` if too much does."""
        ...

    def derender_stream(self, route: str, body: bytes, /) -> DerenderStream:
        """Begin a stream; `RequestError` for a request that has no answer."""
        ...

    def tokenizer_info(self) -> bytes:
        """The answer of `GET /tokenizer_info`."""
        ...
