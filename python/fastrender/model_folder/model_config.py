"""What config.json says: the model's type, its length, its vocabulary, its number type."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from fastrender.model_folder.class_defaults import (
    config_aliases,
    config_defaults,
    text_model_type,
)
from fastrender.model_folder.files import FolderFiles, JsonObject, ModelFolderError

_LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_TEXT_PARTS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "decoder",
    "generator",
    "text_encoder",
)
# Their max_position_embeddings holds the scaled length already.
_SCALED_ROPE_TYPES = {"longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
_LEGACY_ROPE_TYPES = {"su": "longrope", "mrope": "default", "telechat3-yarn": "yarn"}
_DEFAULT_LENGTH = 2_048
_LARGEST_LENGTH = 2**32 - 1
_HALF_TYPES = ("bfloat16", "float16")
_NO_FLOAT16 = {"gemma2", "gemma3", "gemma3_text", "glm4"}

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelConfig:
    """config.json, and its text part with the defaults of its class laid under it."""

    top: JsonObject
    text: JsonObject
    model_type: str
    text_model_type: str
    architectures: tuple[str, ...]

    @property
    def vocab_size(self) -> int | None:
        """Rows of the embedding table, if the config says."""
        size = self.text.count("vocab_size")
        if size is not None and not 0 <= size <= _LARGEST_LENGTH:
            raise self.text.wrong("vocab_size", "a size")
        return size or None


def read_config(files: FolderFiles, overrides: Mapping[str, Any]) -> ModelConfig | None:
    """Read config.json with `--hf-overrides` laid over it; None if there is no such file."""
    file = files.json("config.json")
    if file is None:
        return None
    top = JsonObject(file.file, _overridden(file.values, overrides))
    model_type = top.text("model_type") or ""
    part = _text_part(top)
    text_type = text_model_type(model_type)
    if part is not top:
        text_type = part.text("model_type") or text_type
    aliases = config_aliases(text_type)
    said = {aliases.get(key, key): value for key, value in part.values.items() if value is not None}
    return ModelConfig(
        top=top,
        text=JsonObject(top.file, config_defaults(text_type) | said),
        model_type=model_type,
        text_model_type=text_type,
        architectures=_architectures(top),
    )


def max_model_len(config: ModelConfig, files: FolderFiles, given: int | None) -> int:
    """Tokens of prompt and output together, as vLLM 0.33 derives them (`_get_and_verify_max_len`).

    A given length that is beyond the derived one is taken, with a warning.
    """
    key, derived = _written_length(config.text)
    if derived is None:
        if given is not None:
            return _checked_length(given)
        _logger.warning(
            "config.json of `%s` has no length: %d tokens are assumed, unless --max-model-len says",
            files.name,
            _DEFAULT_LENGTH,
        )
        derived = _DEFAULT_LENGTH
    ropes = _rope_parameters(config.text)
    if "gemma3" not in config.text_model_type:
        derived *= _rope_factor(ropes)
    sentence_length = _sentence_length(files)
    if sentence_length is not None:
        derived = sentence_length
    if given is None:
        # Quality at short lengths is better without the long factors.
        if any(_rope_type(rope) == "longrope" for rope in ropes):
            derived = config.text.count("original_max_position_embeddings") or derived
        return _checked_length(derived)
    largest = max(derived, config.text.number("model_max_length") or 0)
    if given > largest:
        _logger.warning(
            "--max-model-len %d is more than the %d tokens that config.json of `%s` allows (%s)",
            given,
            int(largest),
            files.name,
            key or "by default",
        )
    return _checked_length(given)


def length_without_config(
    files: FolderFiles, tokenizer_config: JsonObject | None, given: int | None
) -> int:
    """The length of a folder that has a tokenizer but no config.json."""
    if given is not None:
        return _checked_length(given)
    written = tokenizer_config.number("model_max_length") if tokenizer_config else None
    # Tokenizers write 1e30 for "no limit".
    length = int(written) if written and written <= _LARGEST_LENGTH else _DEFAULT_LENGTH
    _logger.warning(
        "`%s` has no config.json: %d tokens are assumed, unless --max-model-len says",
        files.name,
        length,
    )
    return _checked_length(length)


def model_dtype(config: ModelConfig) -> str:
    """The number type of the model under vLLM's `--dtype auto`: never float32 of itself."""
    written = _written_dtype(config.top)
    if written == "float16" and config.model_type in _NO_FLOAT16:
        return "bfloat16"
    return written if written in _HALF_TYPES else "bfloat16"


def _overridden(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**values, **overrides}
    for key, value in overrides.items():
        below = values.get(key)
        is_part = key.endswith("_config") or key in _TEXT_PARTS
        if is_part and isinstance(value, dict) and isinstance(below, dict):
            merged[key] = _overridden(below, value)
    if "rope_parameters" in overrides:
        merged.pop("rope_scaling", None)
    return merged


def _text_part(top: JsonObject) -> JsonObject:
    for key in _TEXT_PARTS:
        if isinstance(top.values.get(key), dict):
            part = top.child(key)
            return top if part is None else _text_part(part)
    return top


def _architectures(top: JsonObject) -> tuple[str, ...]:
    names = top.values.get("architectures")
    if names is None:
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise top.wrong("architectures", "a list of strings")
    return tuple(names)


def _written_length(text: JsonObject) -> tuple[str | None, float | None]:
    lengths = {key: number for key in _LENGTH_KEYS if (number := text.number(key)) is not None}
    # Command-R writes the trained length there, and a smaller one elsewhere.
    if lengths.get("model_max_length"):
        return "model_max_length", lengths["model_max_length"]
    if not lengths:
        return None, None
    shortest = min(lengths, key=lambda key: lengths[key])
    return shortest, lengths[shortest]


def _rope_parameters(text: JsonObject) -> list[JsonObject]:
    key = "rope_scaling" if text.values.get("rope_scaling") else "rope_parameters"
    rope = text.child(key)
    if rope is None or not rope.values:
        return []
    # Newer configs have one object for each kind of layer.
    if all(value is None or isinstance(value, dict) for value in rope.values.values()):
        return [part for name in rope.values if (part := rope.child(name)) and part.values]
    return [rope]


def _rope_type(rope: JsonObject) -> str:
    name = rope.text("rope_type") or rope.text("type") or "default"
    return _LEGACY_ROPE_TYPES.get(name, name)


def _rope_factor(ropes: list[JsonObject]) -> float:
    factor: float | None = 1.0
    for rope in ropes:
        if _rope_type(rope) not in _SCALED_ROPE_TYPES and "factor" in rope.values:
            factor = rope.number("factor")
    return 1.0 if factor is None else float(factor)


def _sentence_length(files: FolderFiles) -> int | None:
    for name in files.matching("sentence_*_config.json"):
        file = files.json(name)
        if file is not None and (length := file.count("max_seq_length")) is not None:
            return length
    return None


def _checked_length(length: float) -> int:
    if not 1 <= length <= _LARGEST_LENGTH:
        raise ModelFolderError(
            f"max model length must be 1 to {_LARGEST_LENGTH}, not `{length:.0f}`; "
            "--max-model-len sets it"
        )
    return int(length)


def _written_dtype(top: JsonObject) -> str | None:
    parts = [top, _text_part(top)]
    parts += [part for key in ("vision_config", "encoder_config") if (part := top.child(key))]
    for part in parts:
        for key in ("dtype", "torch_dtype"):
            # Some write one type for each part of the model.
            if isinstance(part.values.get(key), dict):
                continue
            if dtype := part.text(key):
                return dtype.removeprefix("torch.")
    return None
