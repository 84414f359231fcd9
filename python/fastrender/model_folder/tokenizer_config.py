"""What the files beside tokenizer.json say of the tokenizer: its special and added tokens."""

import dataclasses
import fnmatch
import json
import logging
import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from fastrender.model_folder.class_defaults import special_token_defaults, tokenizer_class
from fastrender.model_folder.files import FolderFiles, JsonObject, ModelFolderError
from fastrender.model_folder.model_config import ModelConfig
from fastrender.model_folder.spec import AddedTokenSpec, TokenizerSpec

_STANDARD_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_MODES = ("auto", "hf")
# Patterns of what a folder may have instead of tokenizer.json.
_OTHER_KINDS = (
    ("a tiktoken tokenizer", ("tekken.json", "*.tiktoken", "tiktoken.model")),
    ("a SentencePiece tokenizer", ("*.model", "*.model.v*")),
    ("a vocabulary without tokenizer.json", ("vocab.json", "vocab.txt", "merges.txt")),
)
# vLLM has renderers of its own for these, which use no Jinja template.
_OWN_RENDERERS = {
    "DeepseekV32ForCausalLM",
    "DeepseekV4ForCausalLM",
    "DeepseekV41ForCausalLM",
    "InklingForCausalLM",
    "InklingForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "MoonshotKimiaForCausalLM",
}

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Named special tokens as a template sees them, and all tokens that must be special."""

    named: dict[str, str]
    extra: tuple[str, ...]


def tokenizer_file(
    files: FolderFiles, mode: str, architectures: Iterable[str] = ()
) -> pathlib.Path:
    """The folder's tokenizer.json; every other kind of tokenizer is refused here, and only here."""
    if mode not in _MODES:
        raise ModelFolderError(
            f"tokenizer mode `{mode}` is not supported; known: {', '.join(_MODES)}, "
            "which read tokenizer.json"
        )
    # Also where it is no file: reading it says so.
    if os.path.lexists(files.path / "tokenizer.json"):
        if mode == "auto":
            _mention_other_renderers(files, architectures)
        return files.path / "tokenizer.json"
    names = files.all_names()
    for kind, patterns in _OTHER_KINDS:
        found = [name for pattern in patterns for name in fnmatch.filter(names, pattern)]
        if found:
            some = ", ".join(f"`{name}`" for name in found[:3])
            raise ModelFolderError(
                f"`{files.name}` has {kind} ({some}) but no tokenizer.json, the only kind that "
                "fastrender reads; transformers' `AutoTokenizer.from_pretrained(…)"
                ".save_pretrained(…)` writes one"
            )
    raise ModelFolderError(f"`{files.name}` has no tokenizer.json, which fastrender needs")


def class_name(tokenizer_config: JsonObject | None, config: ModelConfig | None) -> str:
    """The tokenizer class that transformers 5.19 takes for the folder."""
    named = tokenizer_config.text("tokenizer_class") if tokenizer_config else None
    if named is None and config is not None:
        named = config.top.text("tokenizer_class")
    return tokenizer_class(config.model_type if config else "", named)


def special_tokens(
    files: FolderFiles, tokenizer_config: JsonObject | None, tokenizer_class: str
) -> SpecialTokens:
    """The tokenizer's special tokens, in the order in which transformers 5.19 names them.

    Its class has defaults; tokenizer_config.json goes over them; special_tokens_map.json goes over
    both, but only where the former has no `added_tokens_decoder`. A null takes a default away.
    """
    source = tokenizer_config or JsonObject("tokenizer_config.json", {})
    legacy = None
    if "added_tokens_decoder" not in source.values:
        legacy = files.json("special_tokens_map.json")
    standard: dict[str, str | None] = dict(special_token_defaults(tokenizer_class))
    for file in (source, legacy):
        for key in _STANDARD_TOKENS:
            if file is not None and key in file.values:
                standard[key] = _token(file, key)
    named = {key: token for key in _STANDARD_TOKENS if (token := standard.get(key)) is not None}
    return SpecialTokens(named | _own_tokens(source, legacy), _extra_tokens(source, legacy))


def tokenizer_spec(
    files: FolderFiles,
    tokenizer_config: JsonObject | None,
    tokens: SpecialTokens,
    tokenizer_class: str,
    *,
    cache_bytes: int,
) -> TokenizerSpec:
    """How the tokenizer is set up beyond tokenizer.json.

    `add_bos_token` and `add_eos_token` stay unset: transformers 5.19 ignores both for a tokenizer
    that has a tokenizer.json, whose post-processor alone decides.
    """
    source = tokenizer_config or JsonObject("tokenizer_config.json", {})
    added = _decoder_tokens(source)
    if added is None:
        added = _legacy_added_tokens(files, tokens)
    known = {token.content for token in added}
    wanted = dict.fromkeys((*tokens.named.values(), *tokens.extra))
    if missing := [token for token in wanted if token not in known]:
        added += _unlisted_tokens(files, missing)
    return TokenizerSpec(
        added_tokens=tuple(added),
        bos_token=tokens.named.get("bos_token"),
        eos_token=tokens.named.get("eos_token"),
        skipped_tokens=tuple(dict.fromkeys((*tokens.named.values(), *tokens.extra))),
        llama_prepend=_llama_prepend(source) if tokenizer_class == "LlamaTokenizer" else None,
        cache_bytes=cache_bytes,
    )


def _mention_other_renderers(files: FolderFiles, architectures: Iterable[str]) -> None:
    if own := sorted(_OWN_RENDERERS.intersection(architectures)):
        _logger.warning(
            "vLLM renders %s with code of its own; fastrender uses the chat template, "
            "as vLLM does under --tokenizer-mode hf",
            own[0],
        )
    elif files.has("tekken.json") or files.matching("tokenizer.model.v*"):
        _logger.warning(
            "`%s` has a Mistral tokenizer too; fastrender uses tokenizer.json and the chat "
            "template, as vLLM does under --tokenizer-mode hf",
            files.name,
        )


def _token(file: JsonObject, key: str) -> str | None:
    value = file.values[key]
    if isinstance(value, dict):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise file.wrong(key, "a token: a string, or an object with `content`")
    return value


def _own_tokens(source: JsonObject, legacy: JsonObject | None) -> dict[str, str]:
    """Tokens with names that only this model has, such as `image_token`."""
    objects: dict[str, str] = {}
    strings: dict[str, str] = {}
    for key, value in source.values.items():
        if _is_own_name(key) and isinstance(value, str):
            strings[key] = value
        elif _is_own_name(key) and _is_token_object(value):
            objects[key] = value["content"]
    for file in (source, legacy):
        extra = file.values.get("extra_special_tokens") if file is not None else None
        if file is not None and isinstance(extra, dict):
            child = JsonObject(file.file, extra)
            for key in extra:
                if (token := _token(child, key)) is not None:
                    strings[key] = token
    for key, value in legacy.values.items() if legacy is not None else ():
        if _is_own_name(key) and (isinstance(value, str) or _is_token_object(value)):
            objects[key] = value if isinstance(value, str) else value["content"]
    return objects | strings


def _is_own_name(key: str) -> bool:
    return key.endswith("_token") and key not in _STANDARD_TOKENS


def _is_token_object(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("content"), str)


def _extra_tokens(source: JsonObject, legacy: JsonObject | None) -> tuple[str, ...]:
    tokens: dict[str, None] = {}
    for file in (source, legacy):
        if file is None:
            continue
        # The second name is the older one, and counts where the first is empty.
        for key in ("extra_special_tokens", "additional_special_tokens"):
            value = file.values.get(key)
            if value is None or isinstance(value, dict) or value == []:
                continue
            if not isinstance(value, list):
                raise file.wrong(key, "a list of tokens")
            entries = JsonObject(file.file, {f"{key}[{i}]": item for i, item in enumerate(value)})
            tokens.update(
                {token: None for name in entries.values if (token := _token(entries, name))}
            )
            break
    return tuple(tokens)


def _llama_prepend(source: JsonObject) -> str:
    if source.flag("add_prefix_space") is False:
        return "never"
    return "always" if source.flag("legacy") else "first"


def _decoder_tokens(source: JsonObject) -> list[AddedTokenSpec] | None:
    """The tokens of `added_tokens_decoder` by id, or None if there is no such table."""
    if "added_tokens_decoder" not in source.values:
        return None
    table = source.child("added_tokens_decoder")
    if table is None:
        return []
    return sorted((_decoder_token(table, key) for key in table.values), key=lambda token: token.id)


def _decoder_token(table: JsonObject, key: str) -> AddedTokenSpec:
    entry = table.child(key)
    content = entry.text("content") if entry else None
    if not re.fullmatch(r"\d{1,9}", key) or entry is None or content is None:
        raise table.wrong(key, "an entry of `added_tokens_decoder`: an id with a token's object")
    flags = {name: bool(entry.flag(name)) for name in _TOKEN_FLAGS}
    if entry.flag("normalized") is None:
        flags["normalized"] = not flags["special"]
    return AddedTokenSpec(id=int(key), content=content, **flags)


def _legacy_added_tokens(files: FolderFiles, tokens: SpecialTokens) -> list[AddedTokenSpec]:
    """The tokens of added_tokens.json, which older folders have instead of the table."""
    table = files.json("added_tokens.json")
    if table is None:
        return []
    special = {*tokens.named.values(), *tokens.extra}
    found = []
    for content in table.values:
        number = table.count(content)
        if number is None or not 0 <= number < 2**32:
            raise table.wrong(content, "a token's id")
        is_special = content in special
        found.append(
            AddedTokenSpec(
                id=number, content=content, special=is_special, normalized=not is_special
            )
        )
    return sorted(found, key=lambda token: token.id)


def _unlisted_tokens(files: FolderFiles, tokens: Iterable[str]) -> list[AddedTokenSpec]:
    """Those of `tokens` that are not among the added tokens of tokenizer.json, made special.

    The list is looked for in the bytes: to read so large a file as JSON takes too long here.
    """
    content = files.bytes("tokenizer.json") or b""
    start = content.find(b'"added_tokens"')
    end = content.find(b'"normalizer"', start)
    listed = content[start:end] if 0 <= start < end else b""
    return [
        AddedTokenSpec(id=0, content=token, special=True)
        for token in tokens
        if not any(
            re.search(rb'"content"\s*:\s*' + re.escape(spelling), listed)
            for spelling in _json_spellings(token)
        )
    ]


def _json_spellings(text: str) -> list[bytes]:
    spellings = (json.dumps(text, ensure_ascii=ascii_only) for ascii_only in (False, True))
    return [spelling.encode(errors="surrogatepass") for spelling in spellings]
