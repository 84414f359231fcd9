"""What the native half needs to know of a model: the `model` part of a render spec.

Field names are those of rust/core/src/spec.rs, which refuses any that it does not know.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AddedTokenSpec:
    """A token that is cut out of the text before the tokenizer's model sees it."""

    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSpec:
    """How the tokenizer is set up beyond tokenizer.json.

    The native half gives an added token the id that the vocabulary has for it, else the next free
    one, as `tokenizers` does. `llama_prepend` (`first`, `always`, `never`) is where LlamaTokenizer
    puts a space in front, None for every other class. `skipped_tokens` are what
    `skip_special_tokens` leaves out.
    """

    added_tokens: tuple[AddedTokenSpec, ...] = ()
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    skipped_tokens: tuple[str, ...] = ()
    llama_prepend: str | None = None
    cache_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What a model folder means to a renderer."""

    name: str
    served_names: tuple[str, ...]
    max_model_len: int
    vocab_size: int | None
    model_type: str
    special_tokens: Mapping[str, str]
    chat_templates: Mapping[str, str]
    processor_chat_template: str | None
    default_sampling_params: Mapping[str, Any]
    max_tokens_cap: int | None
    eos_token_ids: tuple[int, ...] = ()
    media_placeholders: Mapping[str, str]
    image_placeholder: str | None = None
    tokenizer: TokenizerSpec

    def to_json(self) -> dict[str, Any]:
        """The spec as a JSON object; what is None is left out."""
        return dataclasses.asdict(self, dict_factory=_without_none)


def _without_none(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if value is not None}
