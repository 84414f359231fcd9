"""The two answers that media can cause: the request is wrong, or its URL gave nothing usable."""

from fastrender.errors import RequestError, request_error


def refused(message: str) -> RequestError:
    """A 400: what the request itself says cannot be served."""
    return request_error(_printable(message), "BadRequestError", None, 400)


def unfetchable(message: str) -> RequestError:
    """A 422: the URL is fine, what came of it is not. `param` is vLLM's, for every modality."""
    return request_error(_printable(message), "UnprocessableEntityError", "image_url", 422)


def again(error: RequestError) -> RequestError:
    """The same error, to be raised in another thread."""
    return request_error(error.message, error.type, error.param, error.status)


def _printable(message: str) -> str:
    # JSON's escapes carry surrogates that UTF-8 cannot.
    return message.encode("utf-8", "backslashreplace").decode("utf-8")
