"""A stand-in for a loaded renderer: quick answers, and slow or broken ones on demand."""

import dataclasses
import json
import time
from typing import NoReturn

from fastrender._native import Pending
from fastrender.errors import RequestError, error_envelope

SHORT_BYTES = 32 << 10


class BadRequestError(RequestError):
    """What the native half raises for a request that it refuses."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        self.type = "BadRequestError"
        self.param = param
        self.message = message
        self.body = error_envelope(message, self.type, param, status)


@dataclasses.dataclass(frozen=True)
class Spec:
    """A model that does not exist."""

    name: str = "some/model"
    served_names: tuple[str, ...] = ("m", "alias")
    max_model_len: int = 8_192


class Native:
    """What is told of the native half."""

    backend = "stand-in"

    def __init__(self, calls: list[tuple[str, str | None]]) -> None:
        self.calls = calls

    def stats(self) -> dict[str, int]:
        return {"cache_hits": len(self.calls), "cache_bytes": 17}


class Renderer:
    """Answers with what it was asked; a body may ask for a pause, a large answer or a failure."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.native = Native(self.calls)
        self.spec = Spec()

    def finish_loading(self) -> None:
        pass

    def stats(self) -> dict[str, int]:
        return self.native.stats()

    def derender_stream(self, route: str, body: bytes, /) -> NoReturn:
        raise NotImplementedError

    def complete(self, pending: Pending, /) -> NoReturn:
        raise NotImplementedError

    def begin(self, route: str, body: bytes, request_id: str | None = None, /) -> bytes:
        self.calls.append((route, request_id))
        try:
            wish = json.loads(body)
        except ValueError:
            raise BadRequestError("the body is not JSON", "body.1") from None
        time.sleep(wish.get("pause", 0))
        if wish.get("fail"):
            raise RuntimeError("a secret of the inside")
        answer = {"route": route, "request_id": request_id, "pad": "x" * wish.get("pad", 0)}
        return json.dumps(answer).encode()

    def render(self, route: str, body: bytes, request_id: str | None = None, /) -> bytes:
        return self.begin(route, body, request_id)

    def begin_short(
        self, route: str, body: bytes, request_id: str | None = None, /
    ) -> bytes | None:
        return None if len(body) > SHORT_BYTES else self.begin(route, body, request_id)

    def tokenizer_info(self) -> bytes:
        return b'{"tokenizer_class":"StandIn"}'
