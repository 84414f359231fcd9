"""An engine's chunks for one prompt, as the client's; cut where a stop string ends them."""

import json
from collections.abc import Iterator
from typing import Any

from fastrender.engine.answers import bad_answer
from fastrender.errors import RequestError
from fastrender.server.asked import DERENDER, Asked, Fields, Prompt
from fastrender.server.interface import Renderer

# In JSON no text can hold these.
_NO_CHOICES = b'"choices":[]'


class Chunks:
    """What becomes of one prompt's chunks; they come in order."""

    def __init__(
        self,
        renderer: Renderer,
        asked: Asked,
        prompt: Prompt,
        *,
        base: int = 0,
        keeps: bool = False,
    ) -> None:
        """Choices are numbered from `base`; `keeps` what comes, to make a whole answer of it."""
        self._prompt = prompt
        self._base = base
        self._echo = dict.fromkeys(range(base, base + prompt.choices), prompt.echo)
        self._ended: set[int] = set()
        self._begun = False
        self._kept: dict[int, Fields] | None = {} if keeps else None
        self._prompt_token_ids: list[int] | None = None
        self._stream = renderer.derender_stream(DERENDER[asked.kind], asked.opening(prompt))
        # Chunks have the request's id and not the engine's.
        self._stream.push_chunk(_dumped({"request_id": asked.request_id, "choices": []}))
        self._is_plain = not (prompt.stops or base or prompt.echo or keeps)

    @property
    def done(self) -> bool:
        """Whether no more is needed of the engine."""
        return len(self._ended) == self._prompt.choices

    @property
    def includes_usage(self) -> bool:
        """Whether the client wants its usage told."""
        return self._stream.includes_usage

    def take(self, event: bytes) -> list[bytes]:
        """The client's chunks for one of the engine's; `EngineError` for what is none."""
        try:
            return self._push(event) if self._is_plain else self._take_apart(event)
        except RequestError as error:
            raise bad_answer(error.message) from error

    def finish(self) -> list[bytes]:
        """The client's chunks for the end of what has not ended."""
        if not self._begun:
            raise bad_answer("there is nothing in it")
        last = self._stream.finish("abort")
        return [] if last is None else [last]

    def usage(self) -> Fields:
        """A chunk that tells the usage."""
        chunk: Fields = json.loads(self._stream.usage_chunk())
        return chunk

    def answer(self) -> Fields:
        """What was kept, as an engine's whole answer."""
        if not self._kept:
            raise bad_answer("there is nothing in it")
        choices = [self._kept[index] for index in sorted(self._kept)]
        return {"choices": choices, "prompt_token_ids": self._prompt_token_ids}

    def _push(self, event: bytes) -> list[bytes]:
        chunk = self._stream.push_chunk(event)
        if _NO_CHOICES in chunk:
            return []
        self._begun = True
        return [chunk] if self._stream.tells else []

    def _take_apart(self, event: bytes) -> list[bytes]:
        try:
            chunk = json.loads(event)
            ids = chunk.get("prompt_token_ids")
            self._prompt_token_ids = ids if isinstance(ids, list) else self._prompt_token_ids
            told = []
            for part in self._parts(chunk):
                told += self._push(_dumped(part))
                choice = part["choices"][0]
                self._keep(choice)
                if choice.get("finish_reason") is not None:
                    self._ended.add(choice["index"])
                told += self._end_stopped()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise bad_answer("a chunk in it is malformed") from None
        return [self._echoed(chunk) for chunk in told] if self._prompt.echo else told

    def _parts(self, chunk: Fields) -> Iterator[Fields]:
        """A chunk for each choice; for each token, where a string may end the answer at any."""
        rest = {key: value for key, value in chunk.items() if key != "choices"}
        for choice in chunk["choices"]:
            choice["index"] += self._base
            ids = choice.get("token_ids") or []
            if not self._prompt.stops or len(ids) < 2:
                pieces = [choice]
            else:
                pieces = [_token(choice, place) for place in range(len(ids))]
            for left, piece in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True):
                if piece["index"] in self._ended:
                    break
                yield {**rest, "usage": _before(rest.get("usage"), left), "choices": [piece]}

    def _end_stopped(self) -> list[bytes]:
        """End the choices that have met a stop string."""
        told = []
        for index in self._stream.stopped() if self._prompt.stops else ():
            told.append(self._stream.push([], finish_reason="stop", index=index))
            self._keep({"index": index, "finish_reason": "stop", "stop_reason": None})
            self._ended.add(index)
        return told

    def _keep(self, choice: Fields) -> None:
        if self._kept is None:
            return
        index = choice["index"]
        kept = self._kept.setdefault(
            index, {"index": index, "token_ids": [], "logprobs": None, "finish_reason": None}
        )
        kept["token_ids"] += choice.get("token_ids") or []
        if choice.get("logprobs") is not None:
            logprobs = kept["logprobs"] = kept["logprobs"] or {"content": []}
            logprobs["content"] += choice["logprobs"].get("content") or []
        for key in ("finish_reason", "stop_reason"):
            if key in choice:
                kept[key] = choice[key]

    def _echoed(self, chunk: bytes) -> bytes:
        """A chunk with what goes before the answer, if it is the first of a choice."""
        fields = json.loads(chunk)
        for choice in fields["choices"]:
            if echo := self._echo.pop(choice["index"], ""):
                said = choice.get("delta", choice)
                key = "content" if "delta" in choice else "text"
                said[key] = echo + (said.get(key) or "")
        return _dumped(fields)


def _token(choice: Fields, place: int) -> Fields:
    """The choice's token at `place`, with what belongs to it."""
    last = place + 1 == len(choice["token_ids"])
    logprobs = choice.get("logprobs")
    piece = {
        **choice,
        "token_ids": [choice["token_ids"][place]],
        "finish_reason": choice.get("finish_reason") if last else None,
        "stop_reason": choice.get("stop_reason") if last else None,
    }
    if logprobs is not None:
        piece["logprobs"] = {"content": (logprobs.get("content") or [])[place : place + 1]}
    return piece


def _before(usage: Fields | None, tokens: int) -> Fields | None:
    """A usage as it was `tokens` tokens earlier."""
    if usage is None or not tokens:
        return usage
    less: Fields = {**usage}
    for key in ("completion_tokens", "total_tokens"):
        less[key] = usage[key] - tokens
    return less


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
