"""Answers and chunks of `POST /inference/v1/generate`, in the shapes that vLLM gives them."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fastrender.engine.local.request import GenerateRequest
from fastrender.engine.local.sequence import Candidate, Candidates

_LEAST_LOGPROB = -9999.0


def encoded(value: Mapping[str, Any]) -> bytes:
    """As compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
        errors="backslashreplace"
    )


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """How many tokens there were."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


def logprobs(positions: Sequence[Candidates | None]) -> dict[str, Any]:
    """Logprobs by token id, an entry for each position."""
    return {"content": [_position(candidates or ()) for candidates in positions]}


def prompt_logprobs(
    positions: Sequence[Candidates], names: Mapping[int, str | None]
) -> list[dict[str, Any] | None]:
    """Those of a prompt, by id; its first token has none."""
    told: list[dict[str, Any] | None] = [None]
    for candidates in positions:
        told.append(
            {
                str(candidate.token): {
                    "logprob": _finite(candidate.logprob),
                    "rank": candidate.rank,
                    "decoded_token": names.get(candidate.token),
                }
                for candidate in candidates
            }
        )
    return told


def choice(
    index: int,
    token_ids: Sequence[int],
    *,
    finish_reason: str | None,
    stop_reason: int | str | None,
    generated: int,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """One output, or a part of one; `more` is what the output mode adds."""
    versions = [{"version": "default", "start": 0, "end": generated}]
    return {
        "index": index,
        "finish_reason": finish_reason,
        "stop_reason": stop_reason,
        "token_ids": list(token_ids),
        "routed_experts": None,
        "sampling_mask": None,
        "weight_versions": versions if finish_reason is not None else None,
        **more,
    }


def whole(
    request: GenerateRequest,
    *,
    model: str,
    completion_tokens: int,
    choices: Sequence[Mapping[str, Any]],
    prompt_logprobs: Sequence[Any] | None,
    ec_transfer_params: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A whole answer."""
    returns = request.return_token_ids
    return {
        "request_id": request.request_id,
        "model": model,
        "created": int(time.time()),
        "usage": usage(len(request.token_ids), completion_tokens),
        "prompt_logprobs": prompt_logprobs,
        "prompt_token_id_logprobs": None,
        "prompt_token_ids": request.token_ids if returns else None,
        "mm_placeholders": request.placeholders if returns else None,
        "metrics": None,
        "kv_transfer_params": None,
        "ec_transfer_params": ec_transfer_params,
        "output_mode": request.output_mode,
        "choices": list(choices),
    }


def chunk(
    request: GenerateRequest,
    choices: Sequence[Mapping[str, Any]],
    *,
    completion_tokens: int,
    first: bool,
) -> dict[str, Any]:
    """A chunk of a streamed one."""
    told = request.continuous_usage
    answer: dict[str, Any] = {
        "request_id": request.request_id,
        "usage": usage(len(request.token_ids), completion_tokens) if told else None,
    }
    if first and request.return_token_ids:
        answer["prompt_token_ids"] = request.token_ids
        if request.placeholders is not None:
            answer["mm_placeholders"] = request.placeholders
    return {**answer, "output_mode": request.output_mode, "choices": list(choices)}


def usage_chunk(request: GenerateRequest, completion_tokens: int) -> dict[str, Any]:
    """The chunk that ends a stream whose client asked for its usage."""
    told = usage(len(request.token_ids), completion_tokens)
    return {
        "request_id": request.request_id,
        "usage": {key: value for key, value in told.items() if value is not None},
        "output_mode": request.output_mode,
        "choices": [],
    }


def _position(candidates: Sequence[Candidate]) -> dict[str, Any]:
    entries = [
        {"token_id": c.token, "logprob": _finite(c.logprob), "rank": c.rank or None}
        for c in candidates
    ]
    return {**entries[0], "top_logprobs": entries}


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LEAST_LOGPROB
