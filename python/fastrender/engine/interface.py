"""What an engine is to the server, and how it says that it cannot.

Bodies and answers are JSON as of `POST /inference/v1/generate`.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

from fastrender.errors import error_envelope

# The envelope's `type` of what an engine, rather than a request, is the reason for.
_KINDS = {
    409: "ConflictError",
    429: "TooManyRequestsError",
    500: "InternalServerError",
    502: "BadGatewayError",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
}


class EngineError(Exception):
    """An engine that cannot serve a request now; `body` is the ready error envelope.

    `headers` go into the answer: `Retry-After`, where coming back helps.
    """

    def __init__(
        self, status: int, message: str, *, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """`status` is 409, 429, or 500 to 504."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)
        kind = _KINDS.get(status, "InternalServerError")
        self.body: bytes = error_envelope(message, kind, None, status)


class Engine(Protocol):
    """A token-in/token-out engine.

    Whoever stops waiting (a cancelled task, a closed generator) has its request stopped.
    """

    async def start(self) -> None:
        """Get ready to serve; for the event loop that will call."""
        ...

    async def close(self) -> None:
        """Stop whatever is under way."""
        ...

    async def generate(self, body: bytes, *, request_id: str | None = None) -> bytes:
        """The whole answer.

        Raises `RequestError` for a request that has no answer, and `EngineError`.
        """
        ...

    def stream(self, body: bytes, *, request_id: str | None = None) -> AsyncGenerator[bytes, None]:
        """The answer's chunks, each one JSON object, without SSE framing and without `[DONE]`.

        Errors are raised, before the first chunk or after it.
        """
        ...

    async def healthy(self) -> bool:
        """Whether the engine would serve a request now."""
        ...


@runtime_checkable
class Aborting(Protocol):
    """An engine that knows its requests by their ids."""

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests; their answers have what there was."""
        ...


@runtime_checkable
class Publishing(Protocol):
    """An engine that keeps embeddings for others."""

    @property
    def publishes(self) -> bool:
        """Whether it does, in the role that it has."""
        ...

    def published(self, mm_hash: str) -> memoryview | None:
        """The embedding of that hash, as a safetensors file; None if it is not kept."""
        ...
