"""Reading request bodies: what their headers may say, how large they may be and how slow."""

import asyncio

from starlette.types import Message, Receive

from fastrender.config import RenderConfig
from fastrender.server.answers import Answer, overloaded, refusal
from fastrender.server.work import ClientGoneError

_JSON = b"application/json"


class RefusedError(Exception):
    """Ends a request with `answer`, counted under `reason`."""

    def __init__(self, answer: Answer, reason: str | None = None) -> None:
        """Raised from wherever it shows that the request is not to be rendered."""
        super().__init__(answer.status)
        self.answer = answer
        self.reason = reason


class BodyBudget:
    """Bytes of request bodies that may be held at once."""

    def __init__(self, most: int) -> None:
        """Start with none held."""
        self._most = most
        self._left = most

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._most - self._left

    def take(self, size: int) -> None:
        """Hold `size` bytes more, or refuse the request."""
        if size > self._left:
            raise RefusedError(
                overloaded("too many request bodies are held already"), "memory_full"
            )
        self._left -= size

    def give_back(self, size: int) -> None:
        """Hold `size` bytes less."""
        self._left += size


class BodyReader:
    """Reads JSON bodies within a server's bounds."""

    def __init__(self, config: RenderConfig, budget: BodyBudget) -> None:
        """`budget` is shared by all routes."""
        self._budget = budget
        self._most_bytes = config.max_request_bytes
        self._timeout = config.request_timeout or None

    async def read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The whole body, whose size is taken from the budget; the caller gives it back."""
        self._check_headers(headers)
        message = await receive()
        if message.get("more_body") or message["type"] != "http.request":
            return await self._read_rest(message, receive)
        body: bytes = message.get("body", b"")
        self._check_size(len(body))
        self._budget.take(len(body))
        return body

    def _check_headers(self, headers: dict[bytes, bytes]) -> None:
        content_type = headers.get(b"content-type", b"")
        if content_type != _JSON and content_type.partition(b";")[0].strip().lower() != _JSON:
            raise RefusedError(
                refusal(400, "Bad Request", "the content type must be application/json")
            )
        encoding = headers.get(b"content-encoding")
        if encoding is not None and encoding.strip().lower() != b"identity":
            name = encoding[:40].decode("latin-1")
            text = f"bodies with the content encoding `{name}` are not read; send plain JSON"
            raise RefusedError(refusal(400, "Bad Request", text))
        length = headers.get(b"content-length")
        # What the header says is no proof, but reason enough to refuse at once.
        if length is not None and length.isdigit():
            self._check_size(int(length[:20]))

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            text = f"the body is larger than the {self._most_bytes} bytes that this server reads"
            raise RefusedError(refusal(413, "RequestTooLargeError", text), "too_large")

    async def _read_rest(self, message: Message, receive: Receive) -> bytes:
        """A body that comes in pieces, the first of them `message`."""
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    if message["type"] != "http.request":
                        raise ClientGoneError("reading")
                    piece = message.get("body", b"")
                    self._check_size(size + len(piece))
                    self._budget.take(len(piece))
                    size += len(piece)
                    pieces.append(piece)
                    if not message.get("more_body"):
                        return b"".join(pieces)
                    message = await receive()
        except BaseException as error:
            self._budget.give_back(size)
            if isinstance(error, TimeoutError):
                text = f"the body did not arrive within {self._timeout:g} seconds"
                close = [(b"connection", b"close")]
                answer = refusal(408, "RequestTimeoutError", text, headers=close)
                raise RefusedError(answer, "too_slow") from error
            raise
