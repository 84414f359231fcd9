"""`POST /v1/chat/completions` and `/v1/completions`: requests in, whole or streamed answers out.

A request is rendered, has an engine generate from it, and what comes is derendered; the first and
the last are done here, as the routes of their own do them.
"""

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from starlette.types import Receive, Scope, Send

from fastrender.config import RenderConfig
from fastrender.engine.answers import bad_answer
from fastrender.engine.interface import Engine, EngineError
from fastrender.errors import BusyError, RequestError
from fastrender.server import asked as asking
from fastrender.server.answers import Answer, internal_error, overloaded
from fastrender.server.asked import Asked, Fields, Kind, Prompt
from fastrender.server.bodies import BodyBudget, BodyReader, RefusedError
from fastrender.server.chunks import Chunks
from fastrender.server.echo import add_logprobs, as_chunks, echoed
from fastrender.server.interface import Renderer
from fastrender.server.metrics import Metrics
from fastrender.server.render import MOST_SHORT_BYTES, RenderRoute
from fastrender.server.work import ClientGoneError, QueueFullError, WorkLane, while_connected

FRONT_ROUTES: Final[dict[str, Kind]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
}
# Prompts of one request that engines have at once.
_AT_ONCE = 64
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_DONE = b"[DONE]"

T = TypeVar("T")

logger = logging.getLogger("fastrender.server")


def front_routes(
    renderer: Renderer,
    engine: Engine,
    config: RenderConfig,
    *,
    halves: Mapping[str, RenderRoute],
    lane: WorkLane,
    budget: BodyBudget,
    metrics: Metrics,
) -> dict[str, "FrontRoute"]:
    """The routes by path; `halves` are the render and derender routes that do their parts."""
    return {
        path: FrontRoute(
            path,
            renderer,
            engine,
            config,
            render=halves[f"{path}/render"],
            derender=halves[f"{path}/derender"],
            lane=lane,
            budget=budget,
            metrics=metrics,
        )
        for path in FRONT_ROUTES
    }


class FrontRoute:
    """One route of whole answers."""

    def __init__(
        self,
        path: str,
        renderer: Renderer,
        engine: Engine,
        config: RenderConfig,
        *,
        render: RenderRoute,
        derender: RenderRoute,
        lane: WorkLane,
        budget: BodyBudget,
        metrics: Metrics,
    ) -> None:
        """Serve `path`; `render` and `derender` are the routes that do half of it each."""
        self._path = path
        self._kind = FRONT_ROUTES[path]
        self._renderer = renderer
        self._engine = engine
        self._render = render
        self._derender = derender
        self._lane = lane
        self._budget = budget
        self._bodies = BodyReader(config, budget)
        self._metrics = metrics
        # Of a client that takes nothing.
        self._patience = config.stream_timeout or None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST request."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        held = 0
        try:
            body = await self._bodies.read(headers, receive)
            held = len(body)
            rendered = await self._render.answer(body, headers.get(b"x-request-id"), receive)
            if rendered.status != 200:
                await rendered.send(send)
                return
            size = len(body) + len(rendered.body)
            asked = await self._work(
                size, functools.partial(asking.read, self._kind, body, rendered.body)
            )
            await self._echo(asked, body)
            del body, rendered
            self._budget.give_back(held)
            held = 0
            size = sum(len(prompt.body) for prompt in asked.prompts)
            self._budget.take(size)
            held = size
            if asked.streams_through:
                await self._stream(asked, receive, send)
            else:
                await self._whole(asked, receive, send)
        except ClientGoneError as gone:
            self._metrics.lose(str(gone))
        except (Exception, asyncio.CancelledError) as error:
            await self._answer_for(error).send(send)
        finally:
            self._budget.give_back(held)

    async def _whole(self, asked: Asked, receive: Receive, send: Send) -> None:
        async with while_connected(receive):
            answers = await self._answers(asked)
            body = await self._finished(asked, answers)
        if not asked.streams:
            await Answer(200, body).send(send)
            return
        options = asked.request.get("stream_options") or {}
        await _start(send)
        for chunk in as_chunks(bytes(body), includes_usage=options.get("include_usage") is True):
            await self._send_event(send, chunk)
        await self._end(send)

    async def _answers(self, asked: Asked) -> list[Fields]:
        """The engine's answer to each prompt."""
        if len(asked.prompts) == 1:
            return [await self._generate(asked, asked.prompts[0])]
        turns = asyncio.Semaphore(_AT_ONCE)

        async def generate(prompt: Prompt) -> Fields:
            async with turns:
                return await self._generate(asked, prompt)

        async with contextlib.AsyncExitStack() as stack:
            tasks = [asyncio.create_task(generate(prompt)) for prompt in asked.prompts]
            stack.push_async_callback(_stop, tasks)
            return await asyncio.gather(*tasks)

    async def _generate(self, asked: Asked, prompt: Prompt) -> Fields:
        if prompt.stops:
            return await self._collect(asked, prompt)
        answer = await self._engine.generate(prompt.body)
        try:
            fields = await self._work(len(answer), functools.partial(json.loads, answer))
            if len(fields["choices"]) != prompt.choices:
                raise bad_answer(f"it has not {prompt.choices} choices")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise bad_answer("it is no answer") from None
        return dict(fields)

    async def _collect(self, asked: Asked, prompt: Prompt) -> Fields:
        """The whole answer out of a stream, which ends where a stop string does."""
        chunks = await self._work(
            len(prompt.body),
            lambda: Chunks(self._renderer, asked, prompt, keeps=True),
        )
        async with contextlib.aclosing(self._engine.stream(prompt.body)) as events:
            async for event in events:
                await self._work(len(event), functools.partial(chunks.take, event))
                if chunks.done:
                    break
        return chunks.answer()

    async def _finished(self, asked: Asked, answers: list[Fields]) -> bytes | memoryview:
        """The client's answer."""
        if asked.echoes_logprobs:
            try:
                add_logprobs(asked, answers)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise bad_answer("its logprobs are malformed") from None
        answer = await self._derender.answer(asked.derender_body(answers), None, _never)
        if answer.status == 400:
            # The client's part was rendered, and so is good.
            raise bad_answer(json.loads(bytes(answer.body))["error"]["message"])
        if answer.status != 200:
            raise RefusedError(answer)
        if asked.only_echoes or any(prompt.echo for prompt in asked.prompts):
            return echoed(asked, answer.body)
        return answer.body

    async def _stream(self, asked: Asked, receive: Receive, send: Send) -> None:
        size = sum(len(prompt.body) for prompt in asked.prompts)
        streams = await self._work(size, functools.partial(self._open, asked))
        begun = False
        try:
            async with (
                while_connected(receive),
                contextlib.aclosing(self._merged(asked, streams)) as chunks,
            ):
                async for chunk in chunks:
                    if not begun:
                        await _start(send)
                        begun = True
                    await self._send_event(send, chunk)
                if streams[0].includes_usage:
                    await self._send_event(send, _usage(streams))
        except ClientGoneError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if not begun:
                raise
            await self._send_event(send, bytes(self._answer_for(error).body))
        await self._end(send)

    def _open(self, asked: Asked) -> list[Chunks]:
        """What becomes of each prompt's chunks."""
        streams = []
        base = 0
        for prompt in asked.prompts:
            streams.append(Chunks(self._renderer, asked, prompt, base=base))
            base += prompt.choices
        return streams

    async def _merged(self, asked: Asked, streams: Sequence[Chunks]) -> AsyncGenerator[bytes]:
        """The client's chunks of all prompts, as they come."""
        if len(streams) == 1:
            async with contextlib.aclosing(self._chunks(asked.prompts[0], streams[0])) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        # One chunk ahead, so that engines wait for a client that reads slowly.
        ready: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(1)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def run(prompt: Prompt, stream: Chunks) -> None:
            try:
                async with turns, contextlib.aclosing(self._chunks(prompt, stream)) as chunks:
                    async for chunk in chunks:
                        await ready.put(chunk)
            except Exception as error:
                await ready.put(error)
            else:
                await ready.put(None)

        pairs = zip(asked.prompts, streams, strict=True)
        tasks = [asyncio.create_task(run(prompt, stream)) for prompt, stream in pairs]
        try:
            left = len(tasks)
            while left:
                item = await ready.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    left -= 1
                else:
                    yield item
        finally:
            await _stop(tasks)

    async def _chunks(self, prompt: Prompt, stream: Chunks) -> AsyncGenerator[bytes]:
        async with contextlib.aclosing(self._engine.stream(prompt.body)) as events:
            async for event in events:
                for chunk in await self._work(len(event), functools.partial(stream.take, event)):
                    yield chunk
                if prompt.stops and stream.done:
                    break
        for chunk in stream.finish():
            yield chunk

    async def _echo(self, asked: Asked, body: bytes) -> None:
        """Find the text that goes before each completion."""
        if asked.kind == "chat" or asked.request.get("echo") is not True:
            return
        if asked.request.get("return_token_ids"):
            # Who asked for ids has the prompt as ids.
            return
        given = await self._work(len(body), lambda: json.loads(body)["prompt"])
        texts = given if isinstance(given, list) and isinstance(given[0], str) else [given]
        for place, prompt in enumerate(asked.prompts):
            if isinstance(texts[0], str):
                prompt.echo = texts[place]
            else:
                ids = json.dumps({"tokens": prompt.token_ids}).encode()
                decode = functools.partial(self._renderer.begin, "detokenize", ids)
                answer = await self._work(len(ids), decode)
                assert isinstance(answer, bytes), "there are no media in token ids"
                prompt.echo = json.loads(answer)["prompt"]

    def _answer_for(self, error: BaseException) -> Answer:
        if isinstance(error, RefusedError):
            if error.reason is not None:
                self._metrics.refuse(error.reason)
            return error.answer
        if isinstance(error, RequestError):
            return Answer(error.status, error.body)
        if isinstance(error, EngineError):
            return Answer(error.status, error.body, error.headers)
        if isinstance(error, QueueFullError | BusyError):
            self._metrics.refuse("queue_full")
            return overloaded("too many requests wait already")
        if isinstance(error, asyncio.CancelledError):
            # Only the end of the server cancels; what is said now still reaches the client.
            self._metrics.refuse("draining")
            return overloaded("the server was shut down before the answer was ready")
        logger.error("a request to %s failed", self._path, exc_info=error)
        return internal_error()

    async def _work(self, size: int, function: Callable[[], T]) -> T:
        """Short work is done here, as for other requests, the rest on a thread."""
        if size <= MOST_SHORT_BYTES:
            return function()
        return await self._lane.run(_never, function)

    async def _send_event(self, send: Send, data: bytes) -> None:
        body = b"".join((b"data: ", data, b"\n\n"))
        try:
            async with asyncio.timeout(self._patience):
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            raise ClientGoneError("generating") from None

    async def _end(self, send: Send) -> None:
        await self._send_event(send, _DONE)
        await send({"type": "http.response.body", "body": b""})


async def _start(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})


def _usage(streams: Sequence[Chunks]) -> bytes:
    """The chunk that tells the usage of all prompts."""
    chunk, *others = (stream.usage() for stream in streams)
    for other in others:
        for key, value in other["usage"].items():
            if isinstance(value, int):
                chunk["usage"][key] += value
    return json.dumps(chunk, separators=(",", ":")).encode()


async def _stop(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _never() -> dict[str, str]:
    """Stand in for what tells of clients that are gone: another watches it."""
    await asyncio.Event().wait()
    return {}
