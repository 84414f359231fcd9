"""Versions: our own, and that of the wire."""

import functools

WIRE_VERSION = "0.33.0"


@functools.cache
def own_version() -> str:
    """The version of the installed package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fastrender")
    except PackageNotFoundError:
        return "0+unknown"
