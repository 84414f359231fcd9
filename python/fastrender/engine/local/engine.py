"""`TorchEngine`: requests in, answers out, with the batch on a thread of its own."""

import asyncio
import contextlib
import dataclasses
import functools
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

import torch

from fastrender.config import EMBEDDED_MODEL, RenderConfig
from fastrender.engine.interface import EngineError
from fastrender.engine.local import answer
from fastrender.engine.local.batch import Batch
from fastrender.engine.local.loop import BatchThread
from fastrender.engine.local.media import Media
from fastrender.engine.local.model import Model, load
from fastrender.engine.local.params import refused
from fastrender.engine.local.request import GenerateRequest, Limits, parse
from fastrender.engine.local.sequence import Candidates, Finish, Job, Progress, Span
from fastrender.engine.local.text import Text
from fastrender.engine.local.transfer import Expected
from fastrender.engine.local.vision import Tower
from fastrender.model_folder import ModelFolderError
from fastrender.renderer import Renderer

_GIB = 1 << 30
_CPU_CACHE_BYTES = 4 * _GIB
# Of what is free on a GPU once the weights are there; the rest is for what passes through.
_GPU_CACHE_SHARE = 0.7
_RETRY = ((b"retry-after", b"1"),)

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _Output:
    """What is known of one output of a request."""

    text: Text | None
    tokens: list[int] = dataclasses.field(default_factory=list)
    candidates: list[Candidates | None] = dataclasses.field(default_factory=list)
    said: list[str] = dataclasses.field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclasses.dataclass(slots=True)
class _Step:
    """One output's newest token, and what it says."""

    index: int
    tokens: list[int]
    text: str
    candidates: list[Candidates | None]


class TorchEngine:
    """transformers' models behind `/inference/v1/generate`; see `fastrender.engine.interface`."""

    def __init__(self, config: RenderConfig, renderer: Renderer) -> None:
        """For the model that `renderer` renders for; `start` loads it."""
        self._config = config
        self._renderer = renderer
        spec = renderer.spec
        self._served = spec.served_names
        settings = renderer.config
        self._needs_context = bool(settings.tool_call_parser or settings.reasoning_parser)
        self._thread: BatchThread | None = None
        self._media: Media | None = None
        self._batch: Batch | None = None
        self._model: Model | None = None
        self._held = 0
        # What ends the requests under way, by id.
        self._running: dict[str, list[Callable[[], None]]] = {}
        self._end_token: int | None = None
        self._limits: Limits | None = None
        self._most_tokens = 0

    async def start(self) -> None:
        """Load the model."""
        await asyncio.get_running_loop().run_in_executor(None, self.load)

    def load(self) -> None:
        """Load the model, and start the thread that runs it; blocks."""
        if self._thread is not None:
            return
        config, folder = self._config, self._renderer.folder
        path = folder.path
        if config.model == EMBEDDED_MODEL:
            from fastrender.engine.local.embedded import weighted_folder

            path = weighted_folder(path)
        loaded = load(
            path,
            device=config.device,
            dtype=config.dtype,
            model_dtype=folder.dtype,
            overrides=config.hf_overrides,
            part=config.role,
        )
        self._model = loaded
        tower = None
        if loaded.has_grid_vision and folder.image is not None:
            tower = Tower(loaded, folder.image, int(config.embedding_cache_gb * _GIB))
        if config.role != "encode":
            self._most_tokens = _cache_tokens(loaded, config)
            self._batch = Batch(
                loaded,
                most_rows=config.max_num_seqs,
                most_prompt_tokens=config.max_num_batched_tokens,
                most_tokens=self._most_tokens,
            )
        self._end_token = self._own_end_token()
        self._limits = Limits(
            served_names=self._served,
            any_name=config.skip_model_name_validation,
            vocab_size=loaded.vocab_size,
            max_logprobs=config.max_logprobs,
            max_num_seqs=config.max_num_seqs,
            tokens_only=config.tokens_only,
            needs_context=self._needs_context,
        )
        thread = BatchThread(self._batch, tower)
        thread.start()
        expected = Expected(
            loaded.dtype, loaded.hidden_size, tower.layers if tower is not None else 0
        )
        self._media = Media(config, tower, thread, expected)
        self._thread = thread
        _logger.info(
            "the engine runs %s on %s in %s, role %s",
            type(loaded.config).__name__,
            loaded.device,
            str(loaded.dtype).removeprefix("torch."),
            config.role,
        )

    async def close(self) -> None:
        """Stop; whoever waits gets a 503."""
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.close)
        if self._media is not None:
            await self._media.close()

    async def healthy(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.failure is None

    @property
    def model(self) -> Model | None:
        """The loaded model; None before `start`."""
        return self._model

    @property
    def media(self) -> Media | None:
        """What is done with images; None before `start`."""
        return self._media

    def stats(self) -> dict[str, int]:
        """What is under way, and what is held."""
        batch = self._batch
        return {
            "requests": self._held,
            "sequences": batch.running if batch else 0,
            "waiting": batch.waiting if batch else 0,
            "cache_bytes": batch.cache_bytes if batch else 0,
        }

    async def generate(self, body: bytes, *, request_id: str | None = None) -> bytes:
        """The whole answer to a body of the generate route."""
        request = await self._parse(body, request_id, stream=False)
        with self._place():
            if self._config.role == "encode":
                return await self._encode(request)
            outputs = self._outputs(request)
            prompt: Sequence[Candidates] | None = None
            published = await self._published(request)
            async with contextlib.aclosing(self._run(request, outputs)) as steps:
                async for step in steps:
                    if isinstance(step, list):
                        prompt = step
            finish = functools.partial(self._answer, request, outputs, prompt, published)
            return await asyncio.to_thread(finish)

    async def stream(
        self, body: bytes, *, request_id: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The chunks of a streamed one."""
        request = await self._parse(body, request_id, stream=True)
        if self._config.role == "encode":
            raise refused("an encode worker has nothing to stream: ask without `stream`", "stream")
        with self._place():
            outputs = self._outputs(request)
            first = True
            async with contextlib.aclosing(self._run(request, outputs)) as steps:
                async for step in steps:
                    if isinstance(step, list):
                        continue
                    output = outputs[step.index]
                    if not step.tokens and not step.text and output.finish_reason is None:
                        continue
                    made = answer.chunk(
                        request,
                        [self._choice(request, output, step)],
                        completion_tokens=_count(outputs),
                        first=first,
                    )
                    first = False
                    yield answer.encoded(made)
            if request.include_usage:
                yield answer.encoded(answer.usage_chunk(request, _count(outputs)))

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End requests, by the ids that their answers have, or by their bodies'."""
        for name in request_ids:
            for full in (name, f"generate-tokens-{name}"):
                for stop in list(self._running.get(full, ())):
                    stop()

    @property
    def publishes(self) -> bool:
        """Whether embeddings are kept for others."""
        return self._config.role != "prefill-decode"

    def published(self, mm_hash: str) -> memoryview | None:
        """What an encode worker keeps of that hash."""
        store = self._media.store if self._media is not None else None
        entry = store.fetch(mm_hash) if store is not None else None
        return None if entry is None else memoryview(entry.body)

    async def _parse(self, body: bytes, request_id: str | None, *, stream: bool) -> GenerateRequest:
        if self._limits is None or self._thread is None:
            raise EngineError(503, "the engine is not ready yet", headers=_RETRY)
        if self._thread.failure is not None:
            raise EngineError(503, "the engine has failed; the server's log says why")
        read = functools.partial(parse, body, request_id, self._limits, stream=stream)
        request = await self._in_thread(read) if len(body) > 1 << 16 else read()
        self._check_length(request)
        return request

    def _check_length(self, request: GenerateRequest) -> None:
        assert self._limits is not None
        ids = request.token_ids
        if (largest := max(ids)) >= self._limits.vocab_size:
            raise refused(f"token id {largest} is not in the model's vocabulary")
        longest = self._renderer.spec.max_model_len
        if len(ids) > longest:
            raise refused(
                f"the prompt has {len(ids)} tokens, more than the {longest} of --max-model-len"
            )
        if self._config.role != "encode" and self._room(request) < 1:
            raise refused(
                f"the prompt's {len(ids)} tokens leave no room for an answer", "max_tokens"
            )

    def _room(self, request: GenerateRequest) -> int:
        """Tokens that may be generated, by length and by what the cache holds."""
        used = len(request.token_ids)
        left = self._renderer.spec.max_model_len - used
        # A sequence alone always has the cache; one position more is looked ahead.
        fits = self._most_tokens // 64 * 64 - used - 1
        return min(left, fits)

    def _most_new(self, request: GenerateRequest) -> int:
        spec = self._renderer.spec
        most = self._room(request)
        asked = request.params.max_tokens
        if asked is not None:
            return min(asked, most)
        default = spec.default_sampling_params.get("max_tokens")
        caps = [cap for cap in (default, spec.max_tokens_cap) if cap is not None]
        return min([most, *caps])

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """Count a request while it is served; 429 for more than may wait."""
        if self._held >= self._config.max_num_seqs + self._config.engine_queue_limit:
            raise EngineError(429, "as many requests wait for the engine as may", headers=_RETRY)
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    async def _encode(self, request: GenerateRequest) -> bytes:
        """What an encode worker answers: no tokens, but where the embeddings are."""
        assert self._media is not None
        published = await self._media.publish(request)
        choices = [
            answer.choice(
                0,
                [],
                finish_reason="length",
                stop_reason=None,
                generated=0,
                more={"logprobs": None},
            )
        ]
        return answer.encoded(
            answer.whole(
                request,
                model=self._served[0],
                completion_tokens=0,
                choices=choices,
                prompt_logprobs=None,
                ec_transfer_params=published,
            )
        )

    async def _published(self, request: GenerateRequest) -> dict[str, Any] | None:
        """What an encode worker would say, where this is one too and asked as one is."""
        asked = request.params.max_tokens == 1 and bool(request.items)
        if self._config.role != "all" or not asked or self._media is None:
            return None
        if any(item.kwargs is None for item in request.items):
            return None
        return await self._media.publish(request)

    def _outputs(self, request: GenerateRequest) -> list[_Output]:
        params = request.params
        if request.output_mode == "tokens" and not params.stop:
            return [_Output(None) for _ in range(params.n)]
        return [_Output(Text(self._renderer, params, request.token_ids)) for _ in range(params.n)]

    async def _run(
        self, request: GenerateRequest, outputs: list[_Output]
    ) -> AsyncGenerator[_Step | list[Candidates], None]:
        """Generate; steps of the outputs, and, once, the candidates of the prompt."""
        assert self._media is not None
        assert self._thread is not None
        assert self._limits is not None
        spans: Sequence[Span] = ()
        if request.items:
            spans = await self._media.spans(request)
        bad_words = await self._bad_words(request)
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[list[Progress]] = asyncio.Queue()

        def deliver(job: Job, progress: list[Progress]) -> None:
            # The loop may have been closed meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(queue.put_nowait, progress)

        params = request.params
        most_new = self._most_new(request)
        job = Job(
            prompt=request.token_ids,
            params=dataclasses.replace(params, min_tokens=min(params.min_tokens, most_new)),
            max_tokens=most_new,
            end_token=self._end_token,
            end_tokens=frozenset(self._renderer.spec.eos_token_ids)
            | ({self._end_token} if self._end_token is not None else frozenset()),
            bad_words=bad_words,
            spans=spans,
            deliver=deliver,
        )

        def stop() -> None:
            ends = [Progress(index=i, finish=Finish.ABORT) for i in range(len(outputs))]
            queue.put_nowait(ends)

        self._thread.submit(job)
        self._running.setdefault(request.request_id, []).append(stop)
        left = len(outputs)
        try:
            while left:
                for progress in await queue.get():
                    output = outputs[progress.index]
                    if output.finish_reason is not None:
                        continue
                    if progress.prompt_candidates is not None and progress.index == 0:
                        yield list(progress.prompt_candidates)
                    step = self._take(output, progress)
                    if output.finish_reason is not None:
                        left -= 1
                        if progress.finish is None:
                            # A stop string, which the batch knows nothing of.
                            self._thread.end(job, progress.index)
                    yield step
        finally:
            self._running[request.request_id].remove(stop)
            if not self._running[request.request_id]:
                del self._running[request.request_id]
            self._thread.cancel(job)

    def _take(self, output: _Output, progress: Progress) -> _Step:
        """Add to an output what the batch tells of it."""
        if progress.error is not None:
            _logger.error("a sequence was lost: %s", progress.error)
            raise EngineError(500, "the engine failed on this request; the server's log says why")
        if progress.token is None:
            output.finish_reason = progress.finish.value if progress.finish else None
            text = output.text.finish() if output.text is not None else ""
            output.said.append(text)
            return _Step(progress.index, [], text, [])
        output.tokens.append(progress.token)
        output.candidates.append(progress.candidates)
        finish = progress.finish.value if progress.finish else None
        text = ""
        if output.text is not None:
            text = output.text.push(progress.token, finish, len(output.tokens))
            output.said.append(text)
            if output.text.stopped_by is not None:
                finish = Finish.STOP.value
        output.finish_reason = finish
        if finish is not None:
            stopped = output.text.stopped_by if output.text is not None else None
            output.stop_reason = stopped if stopped is not None else progress.stop_reason
        return _Step(progress.index, [progress.token], text, [progress.candidates])

    def _choice(self, request: GenerateRequest, output: _Output, step: _Step) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if request.output_mode == "text":
            more["text"] = step.text
        more["logprobs"] = self._logprobs(request, step.tokens, step.candidates, output)
        return answer.choice(
            step.index,
            step.tokens,
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            generated=len(output.tokens),
            more=more,
        )

    def _logprobs(
        self,
        request: GenerateRequest,
        tokens: Sequence[int],
        candidates: Sequence[Candidates | None],
        output: _Output,
    ) -> dict[str, Any] | None:
        params = request.params
        if params.logprobs is None and not params.logprob_token_ids:
            return None
        told = answer.logprobs(candidates)
        if request.output_mode == "tokens":
            return told
        return self._named(told, tokens, output)

    def _named(
        self, told: dict[str, Any], tokens: Sequence[int], output: _Output
    ) -> dict[str, Any]:
        """Logprobs by text instead of by id, as a derenderer writes them."""
        before = output.tokens[: len(output.tokens) - len(tokens)][-4:]
        # The tokens before tell what a part of a character is a part of.
        padding: list[dict[str, Any]] = [
            {"token_id": token, "logprob": 0.0, "rank": None, "top_logprobs": []}
            for token in before
        ]
        choice = {
            "index": 0,
            "finish_reason": "length",
            "token_ids": [*before, *tokens],
            "logprobs": {"content": [*padding, *told["content"]]},
        }
        asked = {"messages": [], "logprobs": True, "top_logprobs": -1}
        body = {"generate_response": {"choices": [choice]}, "chat_request": asked}
        whole = json.loads(self._renderer.render("chat_derender", answer.encoded(body)))
        content = whole["choices"][0]["logprobs"]["content"]
        return {"content": content[len(before) :]}

    def _answer(
        self,
        request: GenerateRequest,
        outputs: Sequence[_Output],
        prompt: Sequence[Candidates] | None,
        published: dict[str, Any] | None,
    ) -> bytes:
        choices = []
        for index, output in enumerate(outputs):
            step = _Step(index, output.tokens, "".join(output.said), output.candidates)
            choices.append(self._choice(request, output, step))
        told = None
        if prompt is not None:
            tokens = {candidate.token for position in prompt for candidate in position}
            told = answer.prompt_logprobs(prompt, self._names(tokens))
        made = answer.whole(
            request,
            model=self._served[0],
            completion_tokens=_count(outputs),
            choices=choices,
            prompt_logprobs=told,
            ec_transfer_params=published,
        )
        if request.output_mode == "derender":
            self._derender(request, made, outputs)
        return answer.encoded(made)

    def _derender(
        self, request: GenerateRequest, made: dict[str, Any], outputs: Sequence[_Output]
    ) -> None:
        """Put messages where the tokens' texts would be."""
        params = request.params
        context = request.parse_context or {}
        calls = int(context.get("history_tool_call_cnt") or 0)
        asked = {
            key: value
            for key, value in context.items()
            if key != "history_tool_call_cnt" and value is not None
        }
        told = params.logprobs is not None or bool(params.logprob_token_ids)
        asked |= {
            "messages": _history(calls),
            "logprobs": told,
            "top_logprobs": -1 if told else None,
            "stop": list(params.stop),
            "stop_token_ids": sorted(params.stop_token_ids),
            "ignore_eos": params.ignore_eos,
            "include_stop_str_in_output": params.include_stop_str_in_output,
            "skip_special_tokens": params.skip_special_tokens,
            "return_token_ids": True,
        }
        inner = {**made, "output_mode": "tokens"}
        inner["choices"] = [
            {**choice, "logprobs": _by_id(output) if told else None}
            for choice, output in zip(made["choices"], outputs, strict=True)
        ]
        body = {
            "generate_response": inner,
            "prompt_token_ids": request.token_ids,
            "prompt_tokens": len(request.token_ids),
            "chat_request": asked,
        }
        derendered = json.loads(self._renderer.render("chat_derender", answer.encoded(body)))
        for choice, read in zip(made["choices"], derendered["choices"], strict=True):
            logprobs = read["logprobs"]
            choice.pop("logprobs")
            hidden = read["token_ids"] is None
            choice["finish_reason"] = read["finish_reason"]
            choice["stop_reason"] = read["stop_reason"]
            choice["message"] = read["message"]
            choice["logprobs"] = None if hidden else logprobs
            if hidden:
                choice["token_ids"] = None

    def _names(self, tokens: set[int]) -> dict[int, str | None]:
        """The texts of tokens."""
        return {token: self._renderer.detokenize({"tokens": [token]})["prompt"] for token in tokens}

    async def _bad_words(self, request: GenerateRequest) -> list[list[int]]:
        """The tokens of forbidden words, at a text's beginning and within it."""
        words = request.params.bad_words
        return await self._in_thread(self._encode_words, words) if words else []

    def _encode_words(self, words: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = []
        for word in words:
            own: list[int] = []
            for prefix in ("", " "):
                text = prefix + word.lstrip()
                ids = self._renderer.tokenize({"prompt": text, "add_special_tokens": False})
                tokens = ids["tokens"]
                if not prefix:
                    own = tokens
                # A space that is a token of its own makes no new word.
                elif not tokens or tokens[0] == own[0] or len(tokens) != len(own):
                    continue
                if tokens:
                    found.append(tokens)
        return found

    def _own_end_token(self) -> int | None:
        """The tokenizer's end token, which ends outputs without being named."""
        text = self._renderer.spec.special_tokens.get("eos_token")
        if text is None:
            return None
        ids = self._renderer.tokenize({"prompt": text, "add_special_tokens": False})["tokens"]
        return int(ids[0]) if len(ids) == 1 else None

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _count(outputs: Sequence[_Output]) -> int:
    return sum(len(output.tokens) for output in outputs)


def _by_id(output: _Output) -> dict[str, Any]:
    return answer.logprobs(output.candidates)


def _history(calls: int) -> list[dict[str, Any]]:
    """A conversation that has so many tool calls, which is all that a parser asks of it."""
    if calls <= 0:
        return []
    call = {"id": "-", "type": "function", "function": {"name": "-", "arguments": "{}"}}
    return [{"role": "assistant", "tool_calls": [call] * min(calls, 10_000)}]


def _cache_tokens(loaded: Model, config: RenderConfig) -> int:
    """Positions that the cache may hold, over all sequences."""
    if config.kv_cache_gb:
        most = int(config.kv_cache_gb * _GIB)
    elif loaded.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(loaded.device)
        most = int(free * _GPU_CACHE_SHARE)
    else:
        most = _CPU_CACHE_BYTES
    tokens = most // loaded.bytes_per_token
    if tokens < 128:
        raise ModelFolderError(f"--kv-cache-gb leaves room for {tokens} tokens only")
    return tokens
