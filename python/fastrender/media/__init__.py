"""Media of a request: fetched within bounds, and images decoded to plain RGB.

Nothing here knows of models, templates or routes. Import it where media are met: it loads Pillow
and an HTTP client. Every fault of a client is a `RequestError`: 400 for what the request says, 422
for what its URL gave.
"""

from fastrender.media.decode import Decoded, decode_rgb
from fastrender.media.fetch import Fetcher
from fastrender.media.header import Header, read_header, tells_all
from fastrender.media.limits import MediaLimits, RequestBudget
from fastrender.media.options import DecodeOptions

__all__ = [
    "DecodeOptions",
    "Decoded",
    "Fetcher",
    "Header",
    "MediaLimits",
    "RequestBudget",
    "decode_rgb",
    "read_header",
    "tells_all",
]
