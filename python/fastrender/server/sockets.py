"""The socket that a server listens on."""

import contextlib
import os
import socket
import stat

from fastrender.config import RenderConfig
from fastrender.settings import ConfigError


def bind(config: RenderConfig) -> socket.socket:
    """A socket bound as `config` says, not yet listening; `ConfigError` if that cannot be."""
    if config.uds is not None:
        return _bind_unix(config.uds)
    host = config.host or ""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, config.port))
    except OSError as error:
        bound.close()
        why = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot listen on {host or '*'}:{config.port}: {why}") from error
    bound.set_inheritable(True)
    return bound


def release(config: RenderConfig, bound: socket.socket) -> None:
    """Close the socket, and remove its file if it has one."""
    bound.close()
    if config.uds is not None:
        with contextlib.suppress(OSError):
            os.unlink(config.uds)


def address(config: RenderConfig, bound: socket.socket) -> str:
    """Where clients find the socket."""
    if config.uds is not None:
        return f"unix:{config.uds}"
    host, port = bound.getsockname()[:2]
    scheme = "https" if config.ssl_certfile else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _bind_unix(path: str) -> socket.socket:
    # A socket file outlives a server that was killed; any other file is not ours to remove.
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.stat(path).st_mode) and not _answers(path):
            os.unlink(path)
    bound = socket.socket(socket.AF_UNIX)
    try:
        bound.bind(path)
        os.chmod(path, 0o666)
    except OSError as error:
        bound.close()
        why = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot listen on `{path}`: {why}") from error
    bound.set_inheritable(True)
    return bound


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0
