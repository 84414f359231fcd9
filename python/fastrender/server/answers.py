"""Answers: ready bytes and how they are sent."""

import dataclasses
from collections.abc import Sequence

from starlette.types import Send

from fastrender.errors import error_envelope

_JSON = (b"content-type", b"application/json")
# One event for what fits; a larger answer is handed over piece by piece, so that a slow client
# holds one buffer and not two.
_PIECE_BYTES = 1 << 20

Headers = Sequence[tuple[bytes, bytes]]


@dataclasses.dataclass(slots=True)
class Answer:
    """A status, a JSON body and headers beyond those that every answer has."""

    status: int
    body: bytes | memoryview
    headers: Headers = ()

    def head(self) -> Headers:
        """All of its headers."""
        return [_JSON, (b"content-length", b"%d" % len(self.body)), *self.headers]

    async def send(self, send: Send) -> None:
        """Send it whole."""
        body, headers = self.body, self.head()
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if len(body) <= _PIECE_BYTES:
            await send({"type": "http.response.body", "body": body})
            return
        view = memoryview(body)
        for start in range(0, len(body), _PIECE_BYTES):
            end = start + _PIECE_BYTES
            piece = {"type": "http.response.body", "body": view[start:end]}
            await send({**piece, "more_body": end < len(body)})


def refusal(
    status: int, type: str, message: str, *, param: str | None = None, headers: Headers = ()
) -> Answer:
    """An answer with the error envelope."""
    return Answer(status, error_envelope(message, type, param, status), headers)


def overloaded(message: str) -> Answer:
    """503: come back later."""
    return refusal(503, "ServiceUnavailableError", message, headers=[(b"retry-after", b"1")])


def internal_error() -> Answer:
    """500, which says nothing about the inside."""
    return refusal(
        500, "InternalServerError", "the server failed on this request; its log says why"
    )
