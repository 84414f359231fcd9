"""Defaults for sampling: generation_config.json, and `--override-generation-config` over it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastrender.model_folder.files import FolderFiles, JsonObject

_NUMBERS = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_p",
    "min_p",
)
_COUNTS = ("top_k", "max_new_tokens")
# In vLLM's order (`ModelConfig.get_diff_sampling_param`).
_HONOURED = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "max_new_tokens",
    "skip_special_tokens",
)
_TEXT_PARTS = ("decoder", "generator", "text_config")
_OVERRIDE = "--override-generation-config"


@dataclasses.dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """Values for what a request leaves open, and a bound on its `max_tokens`."""

    params: dict[str, Any]
    max_tokens_cap: int | None


def sampling_defaults(
    files: FolderFiles | None, overrides: Mapping[str, Any], *, own_folder: bool
) -> SamplingDefaults:
    """Reduce the generation config to the keys that vLLM 0.33 honours.

    `files` is the folder of generation_config.json, None under `--generation-config vllm`;
    `own_folder` says that it is not the model's, in which case its `max_new_tokens` is a cap too.
    """
    written = _written(files) if files is not None else JsonObject("generation_config.json", {})
    override = JsonObject(_OVERRIDE, overrides)
    params: dict[str, Any] = {}
    for key in _HONOURED:
        # An override of null takes the folder's value away.
        source = override if key in overrides else written
        if (value := _read(source, key)) is not None:
            params["max_tokens" if key == "max_new_tokens" else key] = value
    cap = params.get("max_tokens") if own_folder else override.count("max_new_tokens")
    return SamplingDefaults(params, cap)


def _written(files: FolderFiles) -> JsonObject:
    file = files.json("generation_config.json")
    if file is not None:
        return file
    # Older models keep these values in config.json.
    config = files.json("config.json")
    if config is None:
        return JsonObject("generation_config.json", {})
    values = {key: config.values.get(key) for key in _HONOURED}
    part = next((part for key in _TEXT_PARTS if (part := config.values.get(key))), None)
    if isinstance(part, dict):
        values = {key: part.get(key) if value is None else value for key, value in values.items()}
    return JsonObject(config.file, values)


def _read(source: JsonObject, key: str) -> Any:
    if key in _NUMBERS:
        return source.number(key)
    return source.count(key) if key in _COUNTS else source.flag(key)
