"""The errors of the native half: what a request did wrong, with a ready answer's body."""

from fastrender._native import RequestError, SetupError, error_envelope, request_error

__all__ = ["RequestError", "SetupError", "error_envelope", "request_error"]
