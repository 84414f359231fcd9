"""Defaults for sampling: generation_config.json, and `--override-generation-config` over it."""

import dataclasses
from collections.abc import Callable, Mapping
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
_FILE = "generation_config.json"
# Beyond these, requests without a value of their own would be refused, each of them. A folder's
# file may hold such values, since vLLM serves it too.
_RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: 0 <= value <= 2, "a number from 0 to 2"),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    "min_p": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "top_k": (lambda value: value >= -1, "-1 or a whole number from 0"),
    "repetition_penalty": (lambda value: value > 0, "a number above 0"),
    "presence_penalty": (lambda value: -2 <= value <= 2, "a number from -2 to 2"),
    "frequency_penalty": (lambda value: -2 <= value <= 2, "a number from -2 to 2"),
}


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
    written = files.json(_FILE) if files is not None else None
    override = JsonObject("--override-generation-config", overrides)
    params: dict[str, Any] = {}
    for key in _HONOURED:
        # An override of null takes the folder's value away.
        source = override if key in overrides else (written or JsonObject(_FILE, {}))
        if (value := _read(source, key)) is not None:
            if source is override and key in _RANGES and not _RANGES[key][0](value):
                raise override.wrong(key, _RANGES[key][1])
            params["max_tokens" if key == "max_new_tokens" else key] = value
    capping = own_folder or "max_new_tokens" in overrides
    return SamplingDefaults(params, params.get("max_tokens") if capping else None)


def eos_token_ids(files: FolderFiles, config: JsonObject | None) -> tuple[int, ...]:
    """Tokens that end an output: of generation_config.json, or of `config` where there is none."""
    written = files.json(_FILE) or config
    value = written.values.get("eos_token_id") if written is not None else None
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for number in ids:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**32:
            assert written is not None
            raise written.wrong("eos_token_id", "a token's id, or a list of them")
    return tuple(ids)


def _read(source: JsonObject, key: str) -> Any:
    if key in _NUMBERS:
        return source.number(key)
    if key not in _COUNTS:
        return source.flag(key)
    count = source.count(key)
    if key == "max_new_tokens" and count is not None and count < 1:
        raise source.wrong(key, "a whole number from 1")
    return count
