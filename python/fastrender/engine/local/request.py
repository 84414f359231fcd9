"""Bodies of `POST /inference/v1/generate`, read and checked.

Source: vLLM's `entrypoints/scale_out/token_in_token_out/protocol.py`. Fields that it does not know
are ignored.
"""

import dataclasses
import json
import secrets
from collections.abc import Mapping
from typing import Any

from fastrender.engine.local.params import SamplingParams, malformed, read, refused
from fastrender.errors import request_error

_MODES = ("tokens", "text", "derender")
_MOST_ITEMS = 4_096
_CONTEXT_FIELDS = frozenset(
    [
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "include_reasoning",
        "chat_template_kwargs",
        "history_tool_call_cnt",
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One medium of a request: where it stands, and what is told of it, still encoded."""

    modality: str
    mm_hash: str
    offset: int
    length: int
    kwargs: str | None
    metadata: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A request that may be served."""

    request_id: str
    model: str | None
    token_ids: list[int]
    items: tuple[Item, ...]
    # `features.mm_placeholders` as it came.
    placeholders: Mapping[str, Any] | None
    params: SamplingParams
    output_mode: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    parse_context: Mapping[str, Any] | None
    ec_transfer_params: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server allows."""

    served_names: tuple[str, ...]
    any_name: bool
    vocab_size: int
    max_logprobs: int
    max_num_seqs: int
    tokens_only: bool
    needs_context: bool


def parse(body: bytes, request_id: str | None, limits: Limits, *, stream: bool) -> GenerateRequest:
    """The request in `body`; `RequestError` for what cannot be. `request_id` is the header's."""
    fields = _object(body)
    _check_shape(fields)
    token_ids = _token_ids(fields)
    params = read(
        fields["sampling_params"],
        vocab_size=limits.vocab_size,
        max_logprobs=limits.max_logprobs,
        most_sequences=limits.max_num_seqs,
    )
    mode = fields.get("output_mode", "tokens")
    if mode not in _MODES:
        raise malformed("body.output_mode", f"`output_mode` must be one of {', '.join(_MODES)}")
    features = fields.get("features")
    if fields.get("content_parts") is not None:
        if features is not None:
            raise malformed("body", "`content_parts` and `features` exclude each other")
        raise refused(
            "the torch engine loads no media: render the request, and send its `features`",
            "content_parts",
        )
    items = () if features is None else _items(features, len(token_ids))
    ec = _optional_object(fields, "ec_transfer_params") or {}
    _check_payload(items, ec)
    if mode != "tokens" and not params.detokenize:
        raise malformed(
            "body", f"`output_mode` {mode} needs `sampling_params.detokenize` to be true"
        )
    context = _optional_object(fields, "parse_context")
    if mode == "derender" and context is not None and (more := context.keys() - _CONTEXT_FIELDS):
        raise malformed("body.parse_context", f"`parse_context` has no `{min(more)[:40]}`")
    if fields.get("cache_salt") == "":
        raise refused("`cache_salt` must not be empty", "cache_salt")
    options = _optional_object(fields, "stream_options") or {}
    model = fields.get("model")
    if model is not None and not limits.any_name and model not in limits.served_names:
        text = (
            f"there is no model `{str(model)[:100]}`; there are: {', '.join(limits.served_names)}"
        )
        raise request_error(text, "NotFoundError", "model", 404)
    _check_mode(mode, params, stream, context, limits)
    if fields.get("kv_transfer_params"):
        raise refused(
            "the torch engine moves no keys and values; vLLM's engines do (`--engine URL`)",
            "kv_transfer_params",
        )
    name = request_id or fields.get("request_id") or secrets.token_hex(8)
    return GenerateRequest(
        request_id=f"generate-tokens-{name}",
        model=model,
        token_ids=token_ids,
        items=items,
        placeholders=features["mm_placeholders"] if features else None,
        params=params,
        output_mode=mode,
        stream=stream,
        include_usage=stream and bool(options.get("include_usage")),
        continuous_usage=stream
        and bool(options.get("include_usage"))
        and bool(options.get("continuous_usage_stats")),
        return_token_ids=bool(fields.get("return_token_ids")),
        parse_context=context,
        ec_transfer_params=ec,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except RecursionError:
        raise malformed("body", "the body is nested too deeply") from None
    except ValueError as error:
        position = getattr(error, "pos", None)
        where = "body" if position is None else f"body.{position}"
        reason = getattr(error, "msg", "no UTF-8")
        raise malformed(where, f"the body is not JSON: {reason}") from None
    if not isinstance(value, dict):
        raise malformed("body", "the body must be a JSON object")
    return value


def _check_shape(fields: Mapping[str, Any]) -> None:
    for name in ("token_ids", "sampling_params"):
        if name not in fields:
            raise malformed(f"body.{name}", f"`{name}` must be given")
    if not isinstance(fields["sampling_params"], dict):
        raise malformed("body.sampling_params", "`sampling_params` must be an object")
    for name in ("model", "request_id", "cache_salt"):
        if not isinstance(fields.get(name), str | None):
            raise malformed(f"body.{name}", f"`{name}` must be a string")
    if "request_id" in fields and fields["request_id"] is None:
        raise malformed("body.request_id", "`request_id` must be a string")
    for name in ("stream", "return_token_ids"):
        if not isinstance(fields.get(name), bool | None):
            raise malformed(f"body.{name}", f"`{name}` must be true or false")
    priority = fields.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= 2**63:
        raise malformed("body.priority", "`priority` must be an integer of 64 bits")


def _token_ids(fields: Mapping[str, Any]) -> list[int]:
    ids = fields["token_ids"]
    if not isinstance(ids, list) or not all(type(id) is int for id in ids):
        raise malformed("body.token_ids", "`token_ids` must be a list of integers")
    if not ids:
        raise malformed("body.token_ids", "`token_ids` must hold at least one id")
    if min(ids) < 0:
        raise malformed("body.token_ids", "`token_ids` must not hold negative ids")
    return ids


def _optional_object(fields: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        raise malformed(f"body.{name}", f"`{name}` must be an object")
    return value


def _items(features: Any, prompt_length: int) -> tuple[Item, ...]:
    where = "body.features"
    if not isinstance(features, dict):
        raise malformed(where, "`features` must be an object")
    hashes = _by_modality(features, "mm_hashes")
    places = _by_modality(features, "mm_placeholders")
    if hashes is None or places is None:
        lacking = "mm_hashes" if hashes is None else "mm_placeholders"
        raise malformed(f"{where}.{lacking}", f"`{lacking}` must be given")
    if hashes.keys() != places.keys():
        raise malformed(where, "`mm_hashes` and `mm_placeholders` must have the same modalities")
    data = {name: _by_modality(features, name) for name in ("kwargs_data", "mm_metadata")}
    for name, values in data.items():
        if values is not None and values.keys() != hashes.keys():
            raise malformed(where, f"`{name}` must have the same modalities as `mm_hashes`")
    items: list[Item] = []
    for modality, names in hashes.items():
        lists = {"mm_placeholders": places[modality]}
        lists |= {name: values[modality] for name, values in data.items() if values is not None}
        for name, entries in lists.items():
            if len(entries) != len(names):
                raise malformed(
                    where, f"`mm_hashes` and `{name}` must have as many items of {modality[:40]}"
                )
        for i, mm_hash in enumerate(names):
            if not isinstance(mm_hash, str) or not mm_hash or len(mm_hash) > 512:
                raise malformed(f"{where}.mm_hashes.{modality}.{i}", "a hash must be a string")
            offset, length = _range(places[modality][i], f"{where}.mm_placeholders.{modality}.{i}")
            texts = [
                _text(lists[name][i], f"{where}.{name}.{modality}.{i}") if name in lists else None
                for name in ("kwargs_data", "mm_metadata")
            ]
            items.append(Item(modality, mm_hash, offset, length, texts[0], texts[1]))
    if len(items) > _MOST_ITEMS:
        raise malformed(where, f"a request may carry {_MOST_ITEMS} media")
    _check_ranges(items, prompt_length)
    return tuple(items)


def _by_modality(features: Mapping[str, Any], name: str) -> dict[str, list[Any]] | None:
    value = features.get(name)
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(v, list) for v in value.values()):
        raise malformed(f"body.features.{name}", f"`{name}` must hold a list for each modality")
    return value


def _range(value: Any, where: str) -> tuple[int, int]:
    if not isinstance(value, dict):
        raise malformed(where, "a place must have `offset` and `length`")
    for name, least in (("offset", 0), ("length", 1)):
        number = value.get(name)
        if type(number) is not int or number < least:
            raise malformed(f"{where}.{name}", f"`{name}` must be an integer of at least {least}")
    return value["offset"], value["length"]


def _text(value: Any, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise malformed(where, "an item must be base64 or null")
    return value


def _check_ranges(items: list[Item], prompt_length: int) -> None:
    end = 0
    for item in sorted(items, key=lambda item: item.offset):
        if item.offset < end:
            raise malformed("body.features", "places of `mm_placeholders` must not overlap")
        end = item.offset + item.length
        if end > prompt_length:
            raise malformed("body", "places of `mm_placeholders` must lie within `token_ids`")


def _check_payload(items: tuple[Item, ...], ec: Mapping[str, Any]) -> None:
    for item in items:
        if item.kwargs is not None:
            continue
        if item.metadata is None:
            raise refused(
                "an item of `features` has neither `kwargs_data` nor `mm_metadata`: what "
                "`mm_payload` none renders is no request, and nothing is taken for cached",
                "features",
            )
        if not ec:
            raise malformed("body", "items with `mm_metadata` alone need `ec_transfer_params`")


def _check_mode(
    mode: str,
    params: SamplingParams,
    stream: bool,
    context: Mapping[str, Any] | None,
    limits: Limits,
) -> None:
    if limits.tokens_only and params.stop:
        raise refused(
            "stop strings are not served with --tokens-only: cut the text yourself", "stop"
        )
    if limits.tokens_only and mode != "tokens":
        raise refused(f"`output_mode` {mode} is not served with --tokens-only")
    if mode != "derender":
        return
    if stream:
        raise refused("`output_mode` derender is not streamed: send the chunks to /derender")
    if limits.needs_context and context is None:
        raise refused("`output_mode` derender needs the render answer's `parse_context` here")
