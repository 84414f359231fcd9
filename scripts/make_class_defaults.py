"""Write model_folder/class_defaults.json: what transformers' classes say where a folder is silent.

Run it in an environment with the reference's transformers:

    python scripts/make_class_defaults.py

Only facts are taken: default numbers of config classes, default special tokens of tokenizer
classes, and which class a model type has.
"""

import contextlib
import inspect
import json
import pathlib
from typing import Any

import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto import tokenization_auto

OUTPUT = pathlib.Path(__file__).parents[1] / "python/fastrender/model_folder/class_defaults.json"
LENGTH_KEYS = (
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
CONFIG_KEYS = (*LENGTH_KEYS, "original_max_position_embeddings", "vocab_size")
TOKEN_KEYS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


def config_facts(model_type: str) -> tuple[dict[str, Any], str | None] | None:
    """The numbers of a config class and the model type of its text part, or None if it has none."""
    config = CONFIG_MAPPING[model_type]()
    text = config.get_text_config()
    if text is not config:
        return {}, text.model_type
    aliases = {old: new for old, new in config.attribute_map.items() if old in CONFIG_KEYS}
    numbers = {
        key: value
        for key in CONFIG_KEYS
        if key not in aliases and isinstance(value := getattr(config, key, None), int)
    }
    if not numbers:
        return None
    return ({**numbers, "aliases": aliases} if aliases else numbers), None


def tokenizer_facts(name: str) -> dict[str, str] | None:
    """The special tokens that a tokenizer class has of itself, or None if it is the generic one."""
    tokenizer_class = tokenization_auto.tokenizer_class_from_name(name)
    generic = transformers.TokenizersBackend
    if tokenizer_class is None or tokenizer_class is generic:
        return None
    if not issubclass(tokenizer_class, generic):
        return None
    parameters = inspect.signature(tokenizer_class.__init__).parameters
    found = {
        key: str(parameters[key].default)
        for key in TOKEN_KEYS
        if key in parameters and parameters[key].default not in (None, inspect.Parameter.empty)
    }
    return found


def main() -> None:
    """Collect and write the tables."""
    configs: dict[str, Any] = {}
    text_types: dict[str, str] = {}
    for model_type in sorted(CONFIG_MAPPING.keys()):
        # Some classes cannot be made without arguments, or want the network.
        with contextlib.suppress(Exception):
            facts = config_facts(model_type)
            if facts is None:
                continue
            numbers, text_type = facts
            if text_type is None:
                configs[model_type] = numbers
            else:
                text_types[model_type] = text_type
    tokenizers: dict[str, dict[str, str]] = {}
    tokenizer_of: dict[str, str] = {}
    for model_type, name in sorted(tokenization_auto.TOKENIZER_MAPPING_NAMES.items()):
        if name is None:
            continue
        name = name.removesuffix("Fast")
        with contextlib.suppress(Exception):
            if (tokens := tokenizer_facts(name)) is not None:
                tokenizers[name] = tokens
                tokenizer_of[model_type] = name
                continue
        # mistral-common is never used here, as under `--tokenizer-mode hf`.
        if name in ("TokenizersBackend", "MistralCommonBackend"):
            tokenizer_of[model_type] = "TokenizersBackend"
    distrusted = sorted(tokenization_auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS)
    tables = {
        "source": f"transformers {transformers.__version__}",
        "configs": configs,
        "text_types": text_types,
        "tokenizers": dict(sorted(tokenizers.items())),
        "tokenizer_of": tokenizer_of,
        "distrusted_tokenizer_class": distrusted,
    }
    lines = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for key, value in tables.items()
    )
    OUTPUT.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(f"{OUTPUT}: {len(configs)} configs, {len(tokenizers)} tokenizer classes")


if __name__ == "__main__":
    main()
