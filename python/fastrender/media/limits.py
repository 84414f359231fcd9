"""How much media may cost: bounds that hold for one medium, and a request's own budget."""

import dataclasses
import threading
from typing import Self

from fastrender.config import RenderConfig

_MEBIBYTE = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """Bounds on fetching and decoding; of those on sizes, 0 means none (as vLLM reads it)."""

    download_bytes: int = 256 * _MEBIBYTE
    request_download_bytes: int = 256 * _MEBIBYTE
    image_pixels: int = 178_956_970
    request_decoded_bytes: int = 715_827_880

    @classmethod
    def from_config(cls, config: RenderConfig) -> Self:
        """The bounds that the settings name."""
        return cls(
            download_bytes=config.max_media_download_size_mb * _MEBIBYTE,
            request_download_bytes=config.max_media_request_download_size_mb * _MEBIBYTE,
            image_pixels=config.max_image_pixels,
            request_decoded_bytes=config.max_media_request_decode_bytes,
        )


class RequestBudget:
    """What the media of one request may still take; any number of threads may charge it."""

    def __init__(self, limits: MediaLimits) -> None:
        """A budget with all of `limits` left."""
        self.limits = limits
        self._downloaded = 0
        self._decoded = 0
        self._lock = threading.Lock()

    def download(self, size: int) -> bool:
        """Take `size` bytes for a download; False, and nothing is taken, if they are not left."""
        bound = self.limits.request_download_bytes
        with self._lock:
            if 0 < bound < self._downloaded + size:
                return False
            self._downloaded += size
        return True

    def decode(self, size: int) -> bool:
        """Take `size` bytes of decoded media, as `download` does."""
        bound = self.limits.request_decoded_bytes
        with self._lock:
            if 0 < bound < self._decoded + size:
                return False
            self._decoded += size
        return True
