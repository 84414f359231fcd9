"""What transformers' classes say where a folder is silent: class_defaults.json."""

import functools
import json
import pathlib
from typing import Any

_GENERIC_TOKENIZER = "TokenizersBackend"


@functools.cache
def _tables() -> dict[str, Any]:
    path = pathlib.Path(__file__).with_name("class_defaults.json")
    tables: dict[str, Any] = json.loads(path.read_bytes())
    return tables


def text_model_type(model_type: str) -> str:
    """The model type of the text part of a composite model type; its own for any other."""
    text_type: str = _tables()["text_types"].get(model_type, model_type)
    return text_type


def config_defaults(model_type: str) -> dict[str, int]:
    """Lengths and vocabulary size of a config that does not say them."""
    values: dict[str, Any] = _tables()["configs"].get(model_type, {})
    return {key: value for key, value in values.items() if key != "aliases"}


def config_aliases(model_type: str) -> dict[str, str]:
    """Second names of a config's fields, with the first ones."""
    values: dict[str, Any] = _tables()["configs"].get(model_type, {})
    aliases: dict[str, str] = values.get("aliases", {})
    return aliases


def tokenizer_class(model_type: str, named_class: str | None) -> str:
    """The tokenizer class that transformers takes, where the folder's files name `named_class`."""
    tables = _tables()
    registered: str | None = tables["tokenizer_of"].get(model_type)
    named = named_class.removesuffix("Fast") if named_class else None
    if named is None:
        return registered or _GENERIC_TOKENIZER
    if registered is None or registered == named:
        return named
    if registered == _GENERIC_TOKENIZER:
        return _GENERIC_TOKENIZER
    return registered if model_type in tables["distrusted_tokenizer_class"] else named


def special_token_defaults(class_name: str) -> dict[str, str]:
    """Special tokens that a tokenizer class has of itself; the generic class has none."""
    tokens: dict[str, str] = _tables()["tokenizers"].get(class_name, {})
    return tokens
