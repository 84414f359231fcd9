"""Images to RGB pixels, bit for bit as vLLM and the image processors behind it get them.

Pillow decodes (its JPEG is the reference's); it lets other threads run meanwhile. Rules: vLLM 0.33,
`multimodal/media/image.py` and `multimodal/image.py`.
"""

import dataclasses
from typing import Any

from PIL import Image

from fastrender.media.limits import MediaLimits, RequestBudget
from fastrender.media.opening import charge, check_size, opened, turned, undecodable_is_refused
from fastrender.media.options import Color, DecodeOptions

_WITH_ALPHA = frozenset(["RGBA", "LA", "PA"])
_DEFAULT_OPTIONS = DecodeOptions()
_DEFAULT_LIMITS = MediaLimits()


@dataclasses.dataclass(frozen=True, slots=True)
class Decoded:
    """An image's pixels: rows of red, green, blue bytes, without gaps.

    `io_config` is what its hash must know beside the encoded bytes: None unless the options changed
    the image.
    """

    width: int
    height: int
    rgb: bytes
    io_config: dict[str, Any] | None


def decode_rgb(
    data: bytes,
    *,
    options: DecodeOptions = _DEFAULT_OPTIONS,
    limits: MediaLimits = _DEFAULT_LIMITS,
    budget: RequestBudget | None = None,
) -> Decoded:
    """Decode the first frame of an image, turned as its EXIF orientation says.

    Raises a 400 for what cannot be decoded, is larger than `limits` allow, or no longer fits into
    the `budget` of its request.
    """
    image = opened(data, limits)
    if budget is not None:
        charge(image, budget)
    with undecodable_is_refused():
        image = turned(image)
        image.load()
        # Icons hold images of other sizes than they say.
        check_size(image, limits)
        converted = _converted(image, options)
        # Image processors make RGB of what the options left in another mode, without background.
        pixels = converted if converted.mode == "RGB" else converted.convert("RGB")
        io_config = None if converted is image else options.io_config()
        return Decoded(*pixels.size, pixels.tobytes(), io_config)


def changes(image: Image.Image, options: DecodeOptions) -> bool:
    """Whether the options make another image of `image`."""
    if options.image_mode is None:
        return False
    return image.mode != options.image_mode or (options.image_mode == "RGB" and _shows(image))


def _converted(image: Image.Image, options: DecodeOptions) -> Image.Image:
    if options.image_mode is None or not changes(image, options):
        return image
    if options.image_mode == "RGB" and _shows(image):
        return _over(image if image.mode == "RGBA" else image.convert("RGBA"), options.background)
    return image.convert(options.image_mode)


def _shows(image: Image.Image) -> bool:
    """Whether a background shows through: in any part, or where one colour or index stands."""
    return image.mode in _WITH_ALPHA or "transparency" in image.info


def _over(image: Image.Image, background: Color) -> Image.Image:
    canvas = Image.new("RGB", image.size, background)
    canvas.paste(image, mask=image.getchannel("A"))
    return canvas
