"""`echo`: what goes before the answers, the prompt or the message that they continue.

Engines do not echo, and derendering does not know prompts; so it is done to finished answers.
"""

import json
from typing import Any

from fastrender.server.asked import Asked, Fields

_CHUNK_KEYS = ("id", "object", "created", "model")


def add_logprobs(asked: Asked, answers: list[Fields]) -> None:
    """Put the logprobs of prompts before those of the engine's answers to them."""
    for prompt, answer in zip(asked.prompts, answers, strict=True):
        entries = answer.get("prompt_logprobs") or []
        before = [_position(*pair) for pair in zip(prompt.token_ids, entries, strict=False)]
        for choice in answer["choices"]:
            said = (choice.get("logprobs") or {}).get("content") or []
            choice["logprobs"] = {"content": before + ([] if asked.only_echoes else said)}


def echoed(asked: Asked, answer: bytes | memoryview) -> bytes:
    """A derendered answer with its echo."""
    fields = json.loads(bytes(answer))
    # Choices are numbered through over all prompts.
    texts = [prompt.echo for prompt in asked.prompts for _ in range(prompt.choices)]
    for choice, text in zip(fields["choices"], texts, strict=False):
        if asked.kind == "chat":
            message = choice["message"]
            message["content"] = text + (message.get("content") or "")
            continue
        choice["text"] = text if asked.only_echoes else text + choice["text"]
        logprobs = choice.get("logprobs")
        if asked.echoes_logprobs and logprobs and logprobs["token_logprobs"]:
            # Nothing comes before the first token, so nothing says how likely it is.
            logprobs["token_logprobs"][0] = logprobs["top_logprobs"][0] = None
    return _dumped(fields)


def as_chunks(answer: bytes, *, includes_usage: bool) -> list[bytes]:
    """A whole completion as the chunks of a stream."""
    fields = json.loads(answer)
    head = {key: fields[key] for key in _CHUNK_KEYS}
    chunks = [{**head, "choices": [choice], "usage": None} for choice in fields["choices"]]
    if includes_usage:
        chunks.append({**head, "choices": [], "usage": fields["usage"]})
    return [_dumped(chunk) for chunk in chunks]


def _position(token: int, entry: Any) -> Fields:
    """A prompt token's logprobs as those of a sampled token are written."""
    candidates = [
        {"token_id": int(key), "logprob": value["logprob"], "rank": value.get("rank")}
        for key, value in (entry or {}).items()
    ]
    own = [candidate for candidate in candidates if candidate["token_id"] == token]
    unknown = {"token_id": token, "logprob": -9999.0, "rank": None}
    others = [candidate for candidate in candidates if candidate["token_id"] != token]
    return {**(own or [unknown])[0], "top_logprobs": own + others}


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
