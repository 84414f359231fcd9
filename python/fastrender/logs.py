"""Logging to stderr."""

import logging
from collections.abc import Iterable

from fastrender.config import RenderConfig

_TRACE = 5


def configure_logging(config: RenderConfig) -> None:
    """Send our own lines at the level of `--uvicorn-log-level`, uvicorn's only what matters."""
    name = config.uvicorn_log_level
    level = _TRACE if name == "trace" else getattr(logging, name.upper())
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=max(level, logging.INFO))
    logging.getLogger("fastrender").setLevel(level)
    # At its info level uvicorn tells about processes and start-up, which we do ourselves.
    chatty = level if level < logging.INFO else max(level, logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(chatty)
    if config.enable_uvicorn_access_log:
        access = logging.getLogger("uvicorn.access")
        access.setLevel(logging.INFO)
        paths = config.disable_access_log_for_endpoints.split(",")
        access.addFilter(_NotPaths(path.strip() for path in paths if path.strip()))


class _NotPaths(logging.Filter):
    """Drops access lines of some paths; uvicorn passes the path as the third argument."""

    def __init__(self, paths: Iterable[str]) -> None:
        super().__init__()
        self._paths = frozenset(paths)

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args
        if not isinstance(arguments, tuple) or len(arguments) < 3:
            return True
        return str(arguments[2]).partition("?")[0] not in self._paths
