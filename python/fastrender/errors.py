"""The errors of the native half: what a request did wrong, with a ready answer's body."""

from fastrender._native import RequestError, error_envelope

__all__ = ["RequestError", "error_envelope"]
