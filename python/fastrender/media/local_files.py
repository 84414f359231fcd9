"""`file:` URLs: only regular files inside of one folder."""

import os
import pathlib
import stat
import urllib.parse

from fastrender.media.failures import refused, unfetchable
from fastrender.settings import ConfigError


class LocalFiles:
    """Reads files of the folder that `--allowed-local-media-path` names."""

    def __init__(self, folder: str | None, largest: int) -> None:
        """`largest` bytes are read of a file at most (0: any number); no `folder` allows none."""
        self._folder = None if folder is None else pathlib.Path(folder).resolve()
        self._largest = largest
        if self._folder is not None and not self._folder.is_dir():
            raise ConfigError(f"allowed-local-media-path: there is no folder `{folder}`")

    def read(self, url: str) -> bytes:
        """The content of the file that a `file:` URL names.

        Raises a 400 without a folder and for what is outside of it, links followed; a 422 for a
        file that is not there, not readable, not a regular one, or too large.
        """
        if self._folder is None:
            raise refused("files are not read: the server runs without --allowed-local-media-path")
        path = self._inside(url, self._folder)
        try:
            # A pipe must not hold the thread up, nor the last step have become a link.
            flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
            with open(os.open(path, flags), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise unfetchable("the file URL does not name a regular file")
                if 0 < self._largest < status.st_size:
                    raise unfetchable(f"the file is larger than {self._largest} bytes")
                # It may have grown since.
                data = file.read(self._largest + 1 if self._largest > 0 else -1)
        except OSError as error:
            why = (error.strerror or "it cannot be read").lower()
            raise unfetchable(f"cannot read the file: {why}") from None
        if 0 < self._largest < len(data):
            raise unfetchable(f"the file is larger than {self._largest} bytes")
        return data

    def _inside(self, url: str, folder: pathlib.Path) -> pathlib.Path:
        try:
            parts = urllib.parse.urlsplit(url)
            host = "" if parts.netloc.lower() == "localhost" else parts.netloc
            path = pathlib.Path(urllib.parse.unquote(host + parts.path)).resolve()
        except (ValueError, OSError, RuntimeError):
            raise refused("the file URL is malformed") from None
        if folder not in path.parents:
            raise refused("the file is outside of --allowed-local-media-path")
        return path
