"""`ModelFamily`, and the table of all of them."""

import dataclasses
import enum
import importlib
import pkgutil
from collections.abc import Iterable, Mapping

_families: dict[str, "ModelFamily"] = {}

Triple = tuple[float, float, float]


class PartialBounds(enum.Enum):
    """What one of `min_pixels` and `max_pixels` alone, or one edge of `size`, means."""

    # Of the two numbers of pixels a single one is passed over; one edge is an error.
    BOTH_OR_NONE = enum.auto()
    # The other one is the processor's own.
    COMPLETED = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageFamily:
    """How images become tensors and tokens: the arithmetic by name, and the processor's defaults.

    The names are those that rust/core/src/image knows. `min_pixels` and `max_pixels` bound the area
    of the resized image; a model folder's preprocessor_config.json goes over every default.
    """

    placeholder: str
    size_rule: str
    filter: str
    flavour: str
    layout: str
    pixels_field: str
    grid_field: str
    patch_size: int
    merge_size: int
    temporal_patch_size: int
    min_pixels: int
    max_pixels: int
    mean: Triple
    std: Triple
    rescale_factor: float = 1 / 255
    # Whether the vision worker normalises, so that pixels travel as bytes.
    device_normalize: bool
    partial_bounds: PartialBounds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """Models that render alike.

    `media_placeholders` is the text that stands for one medium, by modality, where a template takes
    content as one string; `{i}` in it is the medium's number from 1. A modality that is not there
    is not served. Images are processed as `image` says; without it they are refused.
    """

    name: str
    architectures: tuple[str, ...]
    media_placeholders: Mapping[str, str]
    image: ImageFamily | None = None


def register(family: ModelFamily) -> ModelFamily:
    """Make a family known under its architectures, and return it."""
    for architecture in family.architectures:
        known = _families.setdefault(architecture, family)
        if known != family:
            raise ValueError(
                f"`{architecture}` is of the family `{known.name}`; `{family.name}` cannot have it"
            )
    return family


def resolve(architectures: Iterable[str]) -> ModelFamily | None:
    """The family of the first architecture that has one."""
    _import_families()
    return next((_families[name] for name in architectures if name in _families), None)


def _import_families() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
