"""A stand-in for the native half: quick answers, and slow or broken ones on demand.

It goes in place of `fastrender._native` only where that is not built, so that the server's tests
run without a compiler.
"""

import dataclasses
import importlib.util
import json
import sys
import time
import types
from typing import Any


def _envelope(message: str, type: str, param: str | None, code: int) -> bytes:
    error = {"message": message, "type": type, "param": param, "code": code}
    return json.dumps({"error": error}, separators=(",", ":")).encode()


def install() -> None:
    """Make `fastrender._native` importable."""
    if "fastrender._native" in sys.modules or importlib.util.find_spec("fastrender._native"):
        return
    module = types.ModuleType("fastrender._native")
    contents: Any = module
    contents.RequestError = type("RequestError", (Exception,), {})
    contents.error_envelope = _envelope
    sys.modules["fastrender._native"] = module


install()

from fastrender.errors import RequestError, error_envelope  # noqa: E402


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
    """Answers with what it was asked; a body may ask for a pause, a large answer or a failure."""

    backend = "stand-in"

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []

    def begin(self, route: str, body: bytes, request_id: str | None = None, /) -> object:
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

    def stats(self) -> dict[str, int]:
        return {"cache_hits": len(self.calls), "cache_bytes": 17}

    def tokenizer_info(self) -> bytes:
        return b'{"tokenizer_class":"StandIn"}'


class Renderer:
    """A renderer without a model."""

    def __init__(self) -> None:
        self.native = Native()
        self.spec = Spec()
