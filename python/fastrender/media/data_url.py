"""`data:` URLs: which are understood, and their base64."""

import base64
import binascii

from fastrender.media.failures import refused

PREFIX = "data:"
_WHITESPACE = b" \t\n\r\v\f"


def is_data_url(url: str) -> bool:
    """Whether `url` is a `data:` URL, in whatever case."""
    return url[: len(PREFIX)].lower() == PREFIX


def split(url: str) -> tuple[str, str]:
    """Media type and payload of `data:[type][;parameter…];base64,payload`.

    The type is only the client's word: what a payload is, its bytes say. Raises a 400 if there is
    no comma or the part before it does not end in `;base64`, in small letters (vLLM 0.33,
    `multimodal/media/connector.py`, where the second is a 501).
    """
    header, comma, payload = url[len(PREFIX) :].partition(",")
    if not comma:
        raise refused(f"the data URL `{url[:32]}` has no comma before its data")
    media_type, semicolon, encoding = header.rpartition(";")
    if not semicolon or encoding != "base64":
        raise refused("only data URLs with `;base64` before the comma are understood")
    return media_type.partition(";")[0], payload


def decode(payload: str | bytes) -> bytes:
    """The bytes of base64 with the standard alphabet and all its padding; a 400 for anything else.

    Whitespace is skipped, unlike vLLM: many encoders wrap lines.
    """
    try:
        data = payload.encode("ascii") if isinstance(payload, str) else payload
        try:
            return _strictly(data)
        except binascii.Error:
            return _strictly(data.translate(None, _WHITESPACE))
    except (binascii.Error, UnicodeEncodeError):
        raise refused("the data URL's data is not base64 (standard alphabet, padded)") from None


def _strictly(data: bytes) -> bytes:
    # Python lets padding pass behind whole groups.
    if len(data) % 4 or data.endswith(b"==="):
        raise binascii.Error
    return base64.b64decode(data, validate=True)
