"""How a model's images are processed: its family's data, the folder's values, the settings.

Sources: transformers' `Qwen2VLImageProcessor`, vLLM's `multimodal/processing` for the precedence of
options and `mm_device_do_normalize`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastrender.config import RenderConfig
from fastrender.errors import RequestError, request_error
from fastrender.model_folder.files import FolderFiles, ModelFolderError
from fastrender.models.family import ImageFamily, PartialBounds, Triple

_FILES = ("processor_config.json", "preprocessor_config.json")
_BOUNDS = ("min_pixels", "max_pixels")
_EDGES = ("shortest_edge", "longest_edge")
_SCOPE = "images_kwargs"
# Options for other media, or that change nothing about pixels.
_IGNORED = frozenset(
    [
        *("videos_kwargs", "audio_kwargs", "text_kwargs", "common_kwargs", "fps", "num_frames"),
        *("do_sample_frames", "do_rescale", "do_normalize", "do_convert_rgb", "return_tensors"),
    ]
)
_LARGEST = 1 << 40
_PILLOW_FILTERS = {2: "bilinear", 3: "bicubic", 1: "lanczos"}


class OptionError(ValueError):
    """A processing option that cannot be."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageProcessing:
    """All that processing an image needs to know; `spec` is its form for the native half."""

    family: ImageFamily
    filter: str
    patch_size: int
    merge_size: int
    temporal_patch_size: int
    min_pixels: int
    max_pixels: int
    mean: Triple
    std: Triple
    rescale_factor: float
    # Of the pixels on the wire: `uint8` where the worker normalises.
    dtype: str

    def spec(self) -> dict[str, Any]:
        """`ImageProcessorSpec` of rust/core/src/image."""
        spec: dict[str, Any] = {
            "size": {
                "kind": self.family.size_rule,
                "patch_size": self.patch_size,
                "merge_size": self.merge_size,
                "temporal_patch_size": self.temporal_patch_size,
                "min_pixels": self.min_pixels,
                "max_pixels": self.max_pixels,
            },
            "filter": self.filter,
            "flavour": self.family.flavour,
            "dtype": self.dtype,
            "layout": self.family.layout,
            "fields": {"pixels": self.family.pixels_field, "grid": self.family.grid_field},
        }
        if self.dtype != "uint8":
            spec["normalisation"] = {
                "arithmetic": "fused",
                "mean": self.mean,
                "std": self.std,
                "rescale_factor": self.rescale_factor,
            }
        return spec

    def with_options(self, options: Mapping[str, Any]) -> "ImageProcessing":
        """With the `mm_processor_kwargs` of a server or a request; `OptionError` for wrong ones."""
        scoped = options.get(_SCOPE)
        if scoped is not None and not isinstance(scoped, dict):
            raise OptionError(f"{_SCOPE} must be an object")
        flat = {name: value for name, value in options.items() if name != _SCOPE}
        merged = {**flat, **(scoped or {})}
        known = (*_BOUNDS, "size")
        for name in merged:
            if name not in known and name not in _IGNORED:
                raise OptionError(f"`{name}` cannot be set; what can be: {', '.join(known)}")
        low, high = self._bounds(merged)
        if low > high:
            raise OptionError(f"the smallest size, {low} pixels, is above the largest, {high}")
        return dataclasses.replace(self, min_pixels=low, max_pixels=high)

    def _bounds(self, options: Mapping[str, Any]) -> tuple[int, int]:
        partial = self.family.partial_bounds
        size = options.get("size")
        low: int | None = None
        high: int | None = None
        if size is not None:
            if not isinstance(size, dict) or not size.keys() & set(_EDGES):
                raise OptionError(f"size must be an object with {' and '.join(_EDGES)}")
            if partial is PartialBounds.BOTH_OR_NONE and not set(_EDGES) <= size.keys():
                raise OptionError(f"size must hold both {' and '.join(_EDGES)}")
            low, high = (_pixels(edge, size.get(edge)) for edge in _EDGES)
        given = [_pixels(bound, options.get(bound)) for bound in _BOUNDS]
        if partial is PartialBounds.COMPLETED or None not in given:
            low, high = given[0] or low, given[1] or high
        return low or self.min_pixels, high or self.max_pixels


def image_processing(
    family: ImageFamily, files: FolderFiles, config: RenderConfig, model_dtype: str
) -> ImageProcessing:
    """What the folder and the settings make of the family; `ModelFolderError` for wrong values."""
    where, values = _written(files)
    try:
        processing = _from_folder(family, values, _wire_dtype(family, config, model_dtype))
    except OptionError as error:
        raise ModelFolderError(f"{where}: {error}") from error
    try:
        return processing.with_options(config.mm_processor_kwargs)
    except OptionError as error:
        raise ModelFolderError(f"mm-processor-kwargs: {error}") from error


def refused_options(error: OptionError) -> RequestError:
    """The answer to a request whose options are wrong."""
    return request_error(str(error), "BadRequestError", "mm_processor_kwargs", 400)


def _written(files: FolderFiles) -> tuple[str, Mapping[str, Any]]:
    """The folder's image processor, nested in processor_config.json or in a file of its own."""
    nested, own = (files.json(name) for name in _FILES)
    if nested is not None and (part := nested.child("image_processor")) is not None:
        return f"`{_FILES[0]}`", part.values
    return f"`{_FILES[1]}`", own.values if own is not None else {}


def _from_folder(family: ImageFamily, values: Mapping[str, Any], dtype: str) -> ImageProcessing:
    size = values.get("size") or {}
    if not isinstance(size, dict):
        raise OptionError("size must be an object")
    edges = [_pixels(edge, size.get(edge)) for edge in _EDGES]
    if size and None in edges:
        raise OptionError(f"size must hold {' and '.join(_EDGES)}")
    low, high = (_pixels(bound, values.get(bound)) for bound in _BOUNDS)
    resample = values.get("resample")
    name = family.filter if resample is None else _PILLOW_FILTERS.get(resample)
    if name is None:
        raise OptionError(f"no filter is known for resample {resample}")
    return ImageProcessing(
        family=family,
        filter=name,
        patch_size=_side(values, "patch_size", family.patch_size),
        merge_size=_side(values, "merge_size", family.merge_size),
        temporal_patch_size=_side(values, "temporal_patch_size", family.temporal_patch_size),
        min_pixels=low or edges[0] or family.min_pixels,
        max_pixels=high or edges[1] or family.max_pixels,
        mean=_triple(values, "image_mean", family.mean),
        std=_triple(values, "image_std", family.std),
        rescale_factor=_factor(values, family.rescale_factor),
        dtype=dtype,
    )


def _wire_dtype(family: ImageFamily, config: RenderConfig, model_dtype: str) -> str:
    on_device = config.mm_device_do_normalize
    if on_device is None:
        on_device = family.device_normalize
    return "uint8" if on_device and family.device_normalize else model_dtype


def _pixels(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST:
        raise OptionError(f"{name} must be a whole number of pixels above 0")
    return value


def _side(values: Mapping[str, Any], name: str, default: int) -> int:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{name} must be a whole number above 0")
    return value


def _factor(values: Mapping[str, Any], default: float) -> float:
    value = values.get("rescale_factor")
    if value is None:
        return default
    if not isinstance(value, int | float) or not value > 0:
        raise OptionError("rescale_factor must be a number above 0")
    return float(value)


def _triple(values: Mapping[str, Any], name: str, default: Triple) -> Triple:
    value = values.get(name)
    if value is None:
        return default
    if (
        not isinstance(value, list)
        or len(value) != len(default)
        or not all(isinstance(part, int | float) for part in value)
    ):
        raise OptionError(f"{name} must be a list of three numbers")
    return (float(value[0]), float(value[1]), float(value[2]))
