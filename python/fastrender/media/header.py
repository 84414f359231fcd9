"""What an image's header tells: enough for placeholders and hashes, without decoding pixels."""

import contextlib
import dataclasses
import struct
from typing import Any

from PIL import Image, ImageOps

from fastrender.media.decode import changes
from fastrender.media.limits import MediaLimits, RequestBudget
from fastrender.media.opening import charge, check_size, opened, turned, undecodable_is_refused
from fastrender.media.options import DecodeOptions

_DEFAULT_OPTIONS = DecodeOptions()
_DEFAULT_LIMITS = MediaLimits()
# Formats whose size, mode, transparency and EXIF data are all known once their header is read.
# Others may change their mind while they are decoded, so they are.
_TELLING = frozenset(["JPEG", "MPO", "WEBP", "GIF", "BMP", "DIB"])
# Where Pillow looks for EXIF data, and with it the orientation.
_TURNING_INFO = frozenset(["exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"])
_JPEG_SIGNATURE = b"\xff\xd8\xff"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNK_OVERHEAD = 12
_PNG_TEXT = frozenset([b"tEXt", b"zTXt", b"iTXt"])
_PNG_HARMLESS = frozenset([b"IDAT", b"IEND", b"tIME"])
_PNG_TEXT_WITH_EXIF = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """What decoding would give, but for the pixels: `decode_rgb` has the same size and io_config.

    `format` and `mode` are Pillow's words for the encoded image.
    """

    width: int
    height: int
    format: str
    mode: str
    io_config: dict[str, Any] | None


def read_header(
    data: bytes,
    *,
    options: DecodeOptions = _DEFAULT_OPTIONS,
    limits: MediaLimits = _DEFAULT_LIMITS,
    budget: RequestBudget | None = None,
) -> Header:
    """Read an image's header; its pixels may still turn out to be corrupt.

    Raises a 400 for what is no image, or larger than `limits` or the request's `budget` allow. Of
    formats whose header does not say everything, the pixels are decoded.
    """
    image = opened(data, limits)
    if budget is not None:
        charge(image, budget)
    name = image.format or ""
    with undecodable_is_refused():
        if name in _TELLING or (name == "PNG" and _png_is_telling(data)):
            width, height = _turned_size(image)
        else:
            image = turned(image)
            image.load()
            check_size(image, limits)
            width, height = image.size
        io_config = options.io_config() if changes(image, options) else None
        return Header(width, height, name, image.mode, io_config)


def tells_all(data: bytes) -> bool:
    """Whether `read_header` decodes no pixel of what begins as this does."""
    return data.startswith(_JPEG_SIGNATURE) or (
        data.startswith(_PNG_SIGNATURE) and _png_is_telling(data)
    )


def _turned_size(image: Image.Image) -> tuple[int, int]:
    # The same data on the smallest image that shows whether it was turned: EXIF data that cannot be
    # written back turns nothing, which only trying tells.
    if _TURNING_INFO.isdisjoint(image.info):
        return image.size
    probe = Image.new("1", (1, 2))
    probe.info = dict(image.info)
    with contextlib.suppress(Exception):
        probe = ImageOps.exif_transpose(probe)
    width, height = image.size
    return (height, width) if probe.width > probe.height else (width, height)


def _png_is_telling(data: bytes) -> bool:
    """Whether nothing behind a PNG's pixels bears on its size, transparency or orientation."""
    position = len(_PNG_SIGNATURE)
    behind = False
    while position + _PNG_CHUNK_OVERHEAD <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        content = position + 8
        if kind == b"IDAT":
            behind = True
        elif kind == b"IEND":
            return True
        elif behind and kind in _PNG_TEXT:
            if data[content : content + 32].startswith(_PNG_TEXT_WITH_EXIF):
                return False
        elif behind and kind not in _PNG_HARMLESS:
            return False
        position += length + _PNG_CHUNK_OVERHEAD
    return True
