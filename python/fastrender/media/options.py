"""How images are decoded: what `media_io_kwargs.image` of a request or of the server may say."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from fastrender.media.failures import refused

Color = tuple[int, int, int]
WHITE: Color = (255, 255, 255)
_LARGEST_COMPONENT = 255


@dataclasses.dataclass(frozen=True, slots=True)
class DecodeOptions:
    """The mode that images are converted to (None: their own) and what shows through in RGB."""

    image_mode: str | None = "RGB"
    background: Color = WHITE

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> Self:
        """The options of a merged `media_io_kwargs.image`; other keys mean nothing, as in vLLM.

        Raises a 400 for values of the wrong kind.
        """
        image_mode = kwargs.get("image_mode", "RGB")
        if not isinstance(image_mode, str | None):
            raise refused("image_mode must be the name of a mode, or null")
        background = kwargs.get("rgba_background_color", WHITE)
        if not _is_color(background):
            raise refused("rgba_background_color must be a list of three integers from 0 to 255")
        return cls(image_mode, tuple(background))

    def io_config(self) -> dict[str, Any]:
        """What a hash must know of a conversion, under vLLM's names and in its order."""
        return {"image_mode": self.image_mode, "rgba_background_color": self.background}


def _is_color(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == len(WHITE)
        and all(isinstance(part, int) and 0 <= part <= _LARGEST_COMPONENT for part in value)
    )
