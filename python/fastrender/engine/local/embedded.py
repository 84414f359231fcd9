"""Weights of the embedded model: made from a seed, the same everywhere, and kept for next time."""

import contextlib
import hashlib
import logging
import math
import os
import pathlib
import shutil
import tempfile
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForImageTextToText

_SEED = 5
# Changes with whatever changes the weights, so that old ones are not taken for new ones.
_RECIPE = "1"
# Large against the embeddings, lest a token's likeliest successor be itself.
_LAYER_SCALE = 2.0
_EMBEDDING_DEVIATION = 0.5

_logger = logging.getLogger(__name__)


def weighted_folder(folder: pathlib.Path) -> pathlib.Path:
    """A copy of the model folder `folder` that has weights, made if it is not there yet."""
    config = (folder / "config.json").read_bytes()
    key = hashlib.sha256(config + _RECIPE.encode()).hexdigest()[:16]
    target = _cache_folder() / f"tiny-{key}"
    if (target / "model.safetensors").exists():
        return target
    try:
        return _make(folder, target)
    except OSError as error:
        fallback = pathlib.Path(tempfile.mkdtemp(prefix="fastrender-tiny-"))
        _logger.warning("cannot keep the embedded model's weights in `%s` (%s)", target, error)
        return _make(folder, fallback / "model")


def _cache_folder() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(base).expanduser() / "fastrender"


def _make(folder: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = pathlib.Path(tempfile.mkdtemp(prefix=target.name, dir=target.parent))
    try:
        for file in folder.iterdir():
            shutil.copyfile(file, unfinished / file.name)
        save_file(_weights(folder), unfinished / "model.safetensors", {"format": "pt"})
        # Another process may have been faster; its weights are the same.
        with contextlib.suppress(OSError):
            unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if not (target / "model.safetensors").exists():
        raise OSError(f"`{target}` could not be made")
    return target


def _weights(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in sorted(model.state_dict().items())
        if name not in tied
    }
    return {name: _tensor(name, shape) for name, shape in shapes.items()}


def _tensor(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
    embedding = "embed" in name and "patch" not in name
    inputs = math.prod(shape[1:])
    deviation = _EMBEDDING_DEVIATION if embedding else _LAYER_SCALE / math.sqrt(inputs)
    # Bits, since of numpy's random numbers these alone are promised to stay what they are.
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    source = np.random.PCG64([_SEED, key])
    bits: Any = source.random_raw(math.prod(shape))
    even = (bits >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)
    return torch.from_numpy(even.reshape(shape)) * (deviation * math.sqrt(3))
