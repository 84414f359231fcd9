"""Images to embeddings: the vision tower, run once for each, many images at once."""

import collections
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fastrender.engine.local.model import Model
from fastrender.engine.local.params import refused
from fastrender.model_folder.image_processor import ImageProcessing

# Patches that the tower sees at once; one image with more goes alone.
_MOST_PATCHES = 16_384
_LARGEST_SIDE = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class Embedding:
    """What the tower makes of an image: a vector for each of its tokens.

    `deepstack` are further ones for the first layers of the text model.
    """

    tokens: torch.Tensor
    deepstack: tuple[torch.Tensor, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that this holds."""
        return sum(tensor.nbytes for tensor in (self.tokens, *self.deepstack))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """An image as it came over the wire; `key` tells it from all others."""

    mm_hash: str
    key: str
    pixels: torch.Tensor
    # Patches in time, height and width.
    grid: tuple[int, int, int]


class Tower:
    """The vision tower of a model, with the images that it has seen."""

    def __init__(self, model: Model, processing: ImageProcessing, most_bytes: int) -> None:
        """Keep embeddings of at most `most_bytes`."""
        self._model = model
        self._processing = processing
        self._kept: collections.OrderedDict[str, Embedding] = collections.OrderedDict()
        self._most_bytes = most_bytes
        self._bytes = 0
        self.runs = 0
        vision = model.config.vision_config
        self.merge_size = int(vision.spatial_merge_size)
        self._patch = (
            int(vision.in_channels),
            int(vision.temporal_patch_size),
            int(vision.patch_size),
        )
        self.layers = len(getattr(vision, "deepstack_visual_indexes", ()))

    @property
    def kept_bytes(self) -> int:
        """Bytes of embeddings that are kept."""
        return self._bytes

    def read(self, mm_hash: str, fields: Mapping[str, Any], length: int) -> Picture:
        """The image in `fields`, a decoded item, that is to become `length` tokens."""
        grid = self.read_grid(fields, length)
        name = self._processing.family.pixels_field
        pixels = _tensor(fields.get(name), name)
        channels, frames, side = self._patch
        wanted = [grid[0] * grid[1] * grid[2], channels * frames * side * side]
        if list(pixels.shape) != wanted:
            raise refused(f"`{name}` of an image is {list(pixels.shape)}, not {wanted}")
        if pixels.dtype != torch.uint8 and not pixels.dtype.is_floating_point:
            raise refused(f"`{name}` of an image is neither bytes nor floating")
        digest = hashlib.sha256(fields[name][2])
        digest.update(repr((grid, str(pixels.dtype))).encode())
        return Picture(mm_hash, f"{mm_hash}:{digest.hexdigest()}", pixels, grid)

    def read_grid(self, fields: Mapping[str, Any], length: int) -> tuple[int, int, int]:
        """The grid in `fields`, of an image of `length` tokens."""
        name = self._processing.family.grid_field
        values = _tensor(fields.get(name), name).flatten().tolist()
        if len(values) != 3 or any(not isinstance(v, int) for v in values):
            raise refused(f"`{name}` of an image is no grid of three")
        frames, rows, columns = values
        merge = self.merge_size
        fits = frames == 1 and all(
            0 < v < _LARGEST_SIDE and v % merge == 0 for v in (rows, columns)
        )
        if not fits or rows * columns // merge**2 != length:
            raise refused(
                f"an image's grid {frames}x{rows}x{columns} does not come to its {length} tokens"
            )
        return frames, rows, columns

    def known(self, key: str) -> Embedding | None:
        """The embedding of an image that was seen."""
        embedding = self._kept.get(key)
        if embedding is not None:
            self._kept.move_to_end(key)
        return embedding

    def embed(self, pictures: Sequence[Picture]) -> dict[str, Embedding]:
        """The embeddings of as many of the `pictures` as go at once, from the first on; by key."""
        pending: dict[str, Picture] = {}
        found: dict[str, Embedding] = {}
        patches = 0
        for picture in pictures:
            if picture.key in pending or picture.key in found:
                continue
            if (embedding := self.known(picture.key)) is not None:
                found[picture.key] = embedding
                continue
            patches += len(picture.pixels)
            if pending and patches > _MOST_PATCHES:
                break
            pending[picture.key] = picture
        if pending:
            made = self._run(list(pending.values()))
            for key, embedding in zip(pending, made, strict=True):
                found[key] = embedding
                self.keep(key, embedding)
        return found

    def keep(self, key: str, embedding: Embedding) -> None:
        """Remember an embedding, and forget others if there are too many."""
        if key in self._kept or embedding.nbytes > self._most_bytes:
            return
        self._kept[key] = embedding
        self._bytes += embedding.nbytes
        while self._bytes > self._most_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.nbytes

    def _run(self, pictures: Sequence[Picture]) -> list[Embedding]:
        self.runs += 1
        model = self._model
        pixels = torch.cat([self._normalised(picture.pixels) for picture in pictures])
        grid = torch.tensor([picture.grid for picture in pictures], device=model.device)
        output = model.tower.get_image_features(pixels, grid, return_dict=True)
        deepstack = getattr(output, "deepstack_features", None) or ()
        return [
            # Copies, lest a part keep the whole alive.
            Embedding(
                output.pooler_output[i].to(model.dtype).clone(),
                tuple(layer[i].to(model.dtype).clone() for layer in deepstack),
            )
            for i in range(len(pictures))
        ]

    def _normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels as the tower wants them; bytes are normalised as torchvision does."""
        model = self._model
        pixels = pixels.to(model.device)
        if pixels.dtype != torch.uint8:
            return pixels.to(model.dtype)
        processing = self._processing
        scale = 1 / processing.rescale_factor
        mean = torch.tensor(processing.mean, device=model.device) * scale
        std = torch.tensor(processing.std, device=model.device) * scale
        # A patch is [channel][frame][row][column].
        channels = pixels.float().reshape(len(pixels), self._patch[0], -1)
        normal = (channels - mean[:, None]) / std[:, None]
        return normal.reshape(len(pixels), -1).to(model.dtype)


def _tensor(value: Any, name: str) -> torch.Tensor:
    """A tensor as the binding decodes it."""
    if not isinstance(value, tuple):
        raise refused(f"an image has no tensor `{name}`")
    dtype, shape, data = value
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise refused(f"`{name}` of an image has the dtype `{dtype[:20]}`")
    if not data:
        return torch.empty(shape, dtype=kind)
    # Never written to, so that the bytes may be shared.
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(shape)
