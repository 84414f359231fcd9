"""A model as the batch sees it: token ids and places in, logits out.

The models are transformers'. What differs between them here is told by two things alone: whether
positions have three axes (M-RoPE), and whether there is a vision tower that this engine knows.
"""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
)
from transformers.utils.logging import disable_progress_bar

from fastrender.engine.local.rows import RowCache, layer_kinds, visible
from fastrender.model_folder import ModelFolderError

_logger = logging.getLogger(__name__)

# Layers whose past is keys and values at every position, which is what `RowCache` holds.
_SERVED_KINDS = frozenset(["full_attention", "sliding_attention"])
# Models whose vision towers take patches and a grid, and whose text part takes embeddings.
GRID_MODELS = frozenset(["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"])
_DTYPES = {
    "half": torch.float16,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "float32": torch.float32,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Visual:
    """Embeddings of media among the tokens of one forward pass.

    `mask` is `[row, token]`; `embeddings` are in its order, and `deepstack`, one for each of the
    first layers, likewise.
    """

    mask: torch.Tensor
    embeddings: torch.Tensor
    deepstack: tuple[torch.Tensor, ...]


class Model:
    """A loaded model on its device."""

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype) -> None:
        """Serve `model`, transformers' own, which is on `device` in `dtype`."""
        self._model = model
        self.config: PretrainedConfig = model.config
        self.device = device
        self.dtype = dtype
        self.has_grid_vision = self.config.model_type in GRID_MODELS
        text = self.config.get_text_config()
        self.vocab_size = int(text.vocab_size)
        self.hidden_size = int(text.hidden_size)
        self._window = getattr(text, "sliding_window", None)
        self._kinds = layer_kinds(text)
        # Such models ask for a mask for each kind; the others take one.
        self._masks_by_kind = getattr(text, "layer_types", None) is not None
        self._additive = text._attn_implementation not in ("sdpa", None)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one position, over all layers."""
        text = self.config.get_text_config()
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        return int(2 * text.num_hidden_layers * heads * size * self.dtype.itemsize)

    @property
    def tower(self) -> Any:
        """The part that has `get_image_features`."""
        return self._model.model

    def forward(
        self,
        cache: RowCache,
        first_row: int,
        ids: torch.Tensor,
        positions: torch.Tensor,
        *,
        length: int,
        axes: torch.Tensor | None = None,
        visual: Visual | None = None,
        every: bool = False,
    ) -> torch.Tensor:
        """Logits in float32 of the last token of each row, `[row, vocabulary]`; or of all.

        `ids` and `positions` are `[row, token]`; rows are those from `first_row` on, `length` how
        many positions of them are seen. `axes` are the positions of M-RoPE, `[3, row, token]`.
        """
        cache.aim(first_row, positions, length)
        arguments: dict[str, Any] = {
            "attention_mask": self._mask(positions, length),
            "past_key_values": cache,
            "use_cache": True,
        }
        if not self.has_grid_vision:
            output = self._model(
                input_ids=ids,
                position_ids=positions,
                logits_to_keep=0 if every else 1,
                **arguments,
            )
            logits = output.logits
            return logits.float() if every else logits[:, -1].float()
        text = self._model.model.language_model
        embeddings = text.get_input_embeddings()(ids)
        if visual is not None:
            embeddings[visual.mask] = visual.embeddings.to(embeddings.dtype)
            if visual.deepstack:
                arguments["visual_pos_masks"] = visual.mask
                arguments["deepstack_visual_embeds"] = list(visual.deepstack)
        places = positions.expand(3, *positions.shape) if axes is None else axes
        output = text(inputs_embeds=embeddings, position_ids=places, **arguments)
        hidden = output.last_hidden_state
        return self._model.lm_head(hidden if every else hidden[:, -1]).float()

    def _mask(self, positions: torch.Tensor, length: int) -> Any:
        masks: dict[str, torch.Tensor] = {}
        for kind in self._kinds:
            window = self._window if kind == "sliding_attention" else None
            mask = visible(positions, length, window=window)
            if self._additive:
                least = torch.finfo(self.dtype).min
                mask = torch.where(mask, 0.0, least).to(self.dtype)
            masks[kind] = mask
        if self._masks_by_kind and self._kinds != ["full_attention"]:
            return masks
        return next(iter(masks.values()))


def load(
    folder: pathlib.Path,
    *,
    device: str,
    dtype: str,
    model_dtype: str,
    overrides: Mapping[str, Any],
    part: str,
) -> Model:
    """Load the model in `folder`; `part` is the engine's role, `encode` keeps the tower alone.

    `dtype` is the setting, `model_dtype` what `auto` means, on a GPU.
    """
    place = _device(device)
    if dtype == "auto":
        # CPUs compute in 32 bits, faster and closer to what the weights say.
        number = torch.float32 if place.type == "cpu" else _DTYPES[model_dtype]
    else:
        number = _DTYPES[dtype]
    # Other than logs, its progress bars show on whatever stderr is.
    disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder, **overrides)
        _check(config)
        kind: Any = AutoModelForImageTextToText
        if type(config) not in AutoModelForImageTextToText._model_mapping:
            kind = AutoModelForCausalLM
        model = kind.from_pretrained(folder, config=config, dtype=number)
    except (OSError, ValueError, ImportError) as error:
        raise ModelFolderError(f"the engine cannot load `{folder}`: {error}") from error
    if part == "encode":
        if config.model_type not in GRID_MODELS:
            raise ModelFolderError(
                f"`{config.model_type}` has no vision tower that this engine knows; known: "
                f"{', '.join(sorted(GRID_MODELS))}"
            )
        model.model.language_model = torch.nn.Identity()
        model.lm_head = torch.nn.Identity()
    model = model.to(place).eval().requires_grad_(False)
    return Model(model, place, number)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelFolderError("--device cuda: torch finds no GPU")
    return torch.device(name)


def _check(config: PretrainedConfig) -> None:
    text = config.get_text_config()
    kinds = layer_kinds(text)
    if lacking := sorted(set(kinds) - _SERVED_KINDS):
        raise ModelFolderError(
            f"the torch engine does not serve `{config.model_type}`: its layers of "
            f"{', '.join(lacking)} keep no keys and values; vLLM does (`--engine URL`)"
        )
    if config.is_encoder_decoder:
        raise ModelFolderError(f"`{config.model_type}` is no decoder, which an engine needs")
