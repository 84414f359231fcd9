"""JPEGs that weigh what photographs do, with room for a stamp in their comment."""

from __future__ import annotations

import base64
import io
import math
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from random import Random

_COMMENT = b"c" * 24


def jpeg_url(random: Random, width: int, height: int, stamp: str, stamped_as: int) -> str:
    """A data URL of another picture each time.

    `stamp` stands in the base64 of the comment, where the load client puts `stamped_as` characters
    of hexadecimal digits: bytes, and so hashes, differ from pass to pass, pixels do not.
    """
    draw = np.random.default_rng(random.getrandbits(64))
    coarse = draw.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    grain = draw.normal(0, 6, (height, width, 3))
    pixels = np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=88, comment=_COMMENT)
    data = file.getvalue()
    text = base64.b64encode(data).decode()
    # The first whole group of base64 inside the comment.
    place = math.ceil(data.index(_COMMENT) / 3) * 4
    return f"data:image/jpeg;base64,{text[:place]}{stamp}{text[place + stamped_as :]}"
