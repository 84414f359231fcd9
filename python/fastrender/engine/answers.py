"""What engines' answers come to where they are no tokens."""

import json
import logging
from collections.abc import Sequence
from typing import Any

from fastrender.engine.interface import EngineError
from fastrender.errors import RequestError, request_error

# What these say of a request is for whoever made it.
_PASSED_ON = frozenset([400, 404, 409, 413, 422])
_LONGEST_MESSAGE = 4_000
_ERROR_EVENT_STARTS = (b'{"error"', b'{ "error"')

logger = logging.getLogger("fastrender.engine")


def bad_answer(why: str) -> EngineError:
    """An answer that is none."""
    return EngineError(502, f"the engine's answer cannot be used: {why}")


def failure(
    status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]], url: str
) -> RequestError | EngineError:
    """What an engine's error means to the client."""
    found = _envelope(body)
    if status in _PASSED_ON and found is not None:
        return _refused(found, status)
    retry = [(b"retry-after", value) for name, value in headers if name == b"retry-after"]
    if status in (429, 503):
        retry = retry or [(b"retry-after", b"1")]
        return EngineError(status, "the engine takes no more requests now", headers=retry)
    said = found["message"] if found else body[:200].decode("utf-8", "replace")
    logger.error("%s answered %d: %s", url, status, said[:_LONGEST_MESSAGE])
    if status == 504:
        return EngineError(504, "the engine took too long")
    return EngineError(502, f"the engine answered with status {status}")


def failure_of_event(event: bytes) -> RequestError | EngineError | None:
    """The error that an event of a stream tells, if it tells one."""
    if not event.startswith(_ERROR_EVENT_STARTS):
        return None
    found = _envelope(event)
    if found is None:
        return bad_answer("an error in it is malformed")
    status = found["code"]
    if status in _PASSED_ON:
        return _refused(found, status)
    logger.error("an engine ended a stream: %s", found["message"][:_LONGEST_MESSAGE])
    return EngineError(
        status if status in (429, 503) else 502, "the engine failed while it answered"
    )


def _refused(found: dict[str, Any], status: int) -> RequestError:
    return request_error(found["message"][:_LONGEST_MESSAGE], found["type"], found["param"], status)


def _envelope(body: bytes) -> dict[str, Any] | None:
    """The fields of an error envelope."""
    try:
        error = json.loads(body)["error"]
        message, kind, param, code = (
            error.get(key) for key in ("message", "type", "param", "code")
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(message, str) or not isinstance(kind, str):
        return None
    if not isinstance(code, int):
        code = 500
    param = param if isinstance(param, str) else None
    return {"message": message, "type": kind, "param": param, "code": code}
