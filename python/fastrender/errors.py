"""The errors of rendering: those of the native half, and what happens around it."""

from fastrender._native import RequestError, SetupError, error_envelope, request_error

__all__ = ["BusyError", "RequestError", "SetupError", "error_envelope", "request_error"]


class BusyError(Exception):
    """As many requests wait already as may."""
