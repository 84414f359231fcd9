"""Engines that share the work on a request: some encode media, some read prompts, some generate.

What passes between them is theirs: `ec_transfer_params` from the encoder to who reads the prompt,
`kv_transfer_params` from there to who generates, both as they came.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar

from fastrender.engine.answers import bad_answer
from fastrender.engine.interface import Engine
from fastrender.errors import RequestError

T = TypeVar("T")

# Longer bodies are not read and written on the event loop.
_SHORT_BYTES = 64 << 10
_CONFLICT = 409
# What a prompt is read for besides one token; the rest of a request's wishes are the generator's.
_OF_ONE_TOKEN = {"max_tokens": 1, "output_kind": 2}
_NOT_OF_ONE_TOKEN = frozenset(["n", "min_tokens", "logprobs", "stop", "output_text_buffer_length"])

Fields = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Read:
    """A prompt that was read: what is left to ask, and what the answer has to tell of it."""

    body: bytes
    prompt_logprobs: Any = None


class SplitEngine:
    """One engine, as far as its caller sees."""

    def __init__(
        self,
        *,
        encode: Engine | None,
        prefill: Engine,
        decode: Engine | None,
        kv_params: Mapping[str, Any],
    ) -> None:
        """`kv_params` tell a prefill engine to keep its cache for `decode`.

        Without `encode`, or for requests without media, prompts are read at once; without `decode`,
        `prefill` generates too.
        """
        self._encode = encode
        self._prefill = prefill
        self._decode = decode
        self._kv_params = dict(kv_params)

    async def start(self) -> None:
        """Start all."""
        for engine in self._engines():
            await engine.start()

    async def close(self) -> None:
        """Close all."""
        for engine in self._engines():
            await engine.close()

    async def healthy(self) -> bool:
        """Whether each kind has an engine that answers."""
        return all([await engine.healthy() for engine in self._engines()])

    async def generate(self, body: bytes, *, request_id: str | None = None) -> bytes:
        """The whole answer."""
        if self._decode is None:
            answer: bytes = await self._again_if_lost(
                body, request_id, lambda ready: self._prefill.generate(ready, request_id=request_id)
            )
            return answer
        read = await self._again_if_lost(
            body, request_id, lambda ready: self._read(ready, request_id, stream=False)
        )
        answer = await self._decode.generate(read.body, request_id=request_id)
        if read.prompt_logprobs is None:
            return answer
        fields = await _loaded(answer)
        return await _dumped({**fields, "prompt_logprobs": read.prompt_logprobs})

    async def stream(
        self, body: bytes, *, request_id: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The answer's chunks."""
        engine = self._prefill if self._decode is None else self._decode
        again = self._encodes(body)
        while True:
            ready = await self._encoded(body, request_id)
            try:
                if self._decode is not None:
                    ready = (await self._read(ready, request_id, stream=True)).body
                chunks = engine.stream(ready, request_id=request_id)
                first = await anext(chunks, None)
                break
            except RequestError as error:
                if error.status != _CONFLICT or not again:
                    raise
                again = False
        async with contextlib.aclosing(chunks):
            if first is not None:
                yield first
            async for chunk in chunks:
                yield chunk

    def _engines(self) -> list[Engine]:
        engines = (self._encode, self._prefill, self._decode)
        return [engine for engine in engines if engine is not None]

    def _encodes(self, body: bytes) -> bool:
        return self._encode is not None and b'"mm_hashes"' in body

    async def _again_if_lost(
        self, body: bytes, request_id: str | None, ask: Callable[[bytes], Any]
    ) -> Any:
        """Ask with the media encoded; once more if the encoder has dropped them meanwhile."""
        try:
            return await ask(await self._encoded(body, request_id))
        except RequestError as error:
            if error.status != _CONFLICT or not self._encodes(body):
                raise
        return await ask(await self._encoded(body, request_id))

    async def _encoded(self, body: bytes, request_id: str | None) -> bytes:
        """The request for who reads its prompt: its media encoded, where there are some to be."""
        if self._encode is None or not self._encodes(body):
            return body
        fields = await _loaded(body)
        features = fields.get("features")
        if not features or not features.get("kwargs_data") or fields.get("ec_transfer_params"):
            return body
        shared = {key: features[key] for key in ("mm_hashes", "mm_placeholders")}
        own = ("request_id", "token_ids", "model", "cache_salt", "priority")
        asked: Fields = {key: fields[key] for key in own if fields.get(key) is not None}
        asked["features"] = {**shared, "kwargs_data": features["kwargs_data"]}
        asked["sampling_params"] = {"max_tokens": 1}
        answer = await _loaded(
            await self._encode.generate(await _dumped(asked), request_id=request_id)
        )
        params = answer.get("ec_transfer_params")
        if not isinstance(params, dict) or not params:
            raise bad_answer("an encode engine gave no `ec_transfer_params`")
        fields["ec_transfer_params"] = params
        # What has no metadata has to be told by its data.
        if features.get("mm_metadata"):
            fields["features"] = {**shared, "mm_metadata": features["mm_metadata"]}
        return await _dumped(fields)

    async def _read(self, body: bytes, request_id: str | None, *, stream: bool) -> _Read:
        """Have the prompt read; the request for who generates from it."""
        fields = await _loaded(body)
        sampling = fields["sampling_params"]
        kept = {key: value for key, value in sampling.items() if key not in _NOT_OF_ONE_TOKEN}
        asked = {
            **fields,
            "sampling_params": {**kept, **_OF_ONE_TOKEN},
            "stream": False,
            "stream_options": None,
            "kv_transfer_params": fields.get("kv_transfer_params") or self._kv_params,
        }
        answer = await _loaded(
            await self._prefill.generate(await _dumped(asked), request_id=request_id)
        )
        logprobs = None
        if sampling.get("prompt_logprobs") is not None and not stream:
            logprobs = answer.get("prompt_logprobs")
            # Who has not read the prompt cannot tell of it.
            fields["sampling_params"] = {**sampling, "prompt_logprobs": None}
        fields["kv_transfer_params"] = answer.get("kv_transfer_params")
        return _Read(await _dumped(fields), logprobs)


async def _loaded(body: bytes) -> Fields:
    try:
        value = json.loads(body) if len(body) <= _SHORT_BYTES else await _threaded(json.loads, body)
    except (ValueError, RecursionError):
        raise bad_answer("it is not JSON") from None
    if not isinstance(value, dict):
        raise bad_answer("it is no JSON object")
    return value


async def _dumped(fields: Fields) -> bytes:
    if fields.get("features") is None:
        return _dump(fields)
    return await _threaded(_dump, fields)


def _dump(fields: Fields) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


async def _threaded(function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.to_thread(function, *arguments)
