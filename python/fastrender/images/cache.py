"""Processed images by what they are, the least recently used of them dropped first."""

import collections
import threading

from fastrender._native import Image

# Of names that clients gave to images: what a name and its image's key take is small.
_MOST_NAMES = 100_000
# What an entry takes beside its pixels.
_ENTRY_BYTES = 500


class ImageCache:
    """Images within `most_bytes` in all; any number of threads may use it at once.

    An image is found by its content's hash, or by the name (uuid) that a client last gave to it.
    """

    def __init__(self, most_bytes: int) -> None:
        """Start empty; with no bytes nothing is kept."""
        self._most = most_bytes
        self._images: collections.OrderedDict[str, Image] = collections.OrderedDict()
        self._names: collections.OrderedDict[str, str] = collections.OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    @property
    def keeps(self) -> bool:
        """Whether anything is kept at all."""
        return self._most > 0

    def get(self, key: str) -> Image | None:
        """The image of this content hash."""
        with self._lock:
            return self._found(key)

    def named(self, name: str) -> Image | None:
        """The image that last had this name."""
        with self._lock:
            return self._found(self._names.get(name))

    def put(self, key: str, image: Image, name: str | None) -> None:
        """Keep an image, and the name that it had if it had one."""
        size = image.nbytes + _ENTRY_BYTES
        if size > self._most:
            return
        with self._lock:
            if name is not None:
                self._names[name] = key
                self._names.move_to_end(name)
                if len(self._names) > _MOST_NAMES:
                    self._names.popitem(last=False)
            if key in self._images:
                self._images.move_to_end(key)
                return
            self._images[key] = image
            self._bytes += size
            while self._bytes > self._most:
                _, dropped = self._images.popitem(last=False)
                self._bytes -= dropped.nbytes + _ENTRY_BYTES

    def stats(self) -> dict[str, int]:
        """Counters and sizes, by the names that `/metrics` has for them."""
        with self._lock:
            return {
                "image_cache_hits": self.hits,
                "image_cache_misses": self.misses,
                "image_cache_bytes": self._bytes,
                "image_cache_entries": len(self._images),
            }

    def _found(self, key: str | None) -> Image | None:
        image = None if key is None else self._images.get(key)
        if image is None or key is None:
            self.misses += 1
            return None
        self._images.move_to_end(key)
        self.hits += 1
        return image
