import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import fake_engine
from fake_engine import Engine, closing, engine, unused_url
from fastrender.config import RenderConfig
from fastrender.engine.balance import Balancer, Prompt
from fastrender.engine.events import EventReader, TooLongError
from fastrender.engine.interface import EngineError
from fastrender.engine.remote import RemoteEngine, RemoteOptions
from fastrender.settings import ConfigError


def prompt(ids: list[int]) -> Prompt:
    return Prompt.of(body(ids))


def body(ids: list[int], **fields: Any) -> bytes:
    request = {"request_id": "r", "token_ids": ids, "sampling_params": {}, **fields}
    return json.dumps(request, separators=(",", ":")).encode()


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(fake_engine.until, condition)


def run(
    engines: list[Engine | str],
    test: Callable[[RemoteEngine], Awaitable[None]],
    **options: Any,
) -> None:
    urls = [one if isinstance(one, str) else one.url for one in engines]

    async def main() -> None:
        remote = RemoteEngine(urls, RemoteOptions(**options))
        await remote.start()
        try:
            async with asyncio.timeout(30):
                await test(remote)
        finally:
            await remote.close()

    asyncio.run(main())


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_come_out_however_they_are_cut(size: int) -> None:
    text = b': hi\ndata: {"a":1}\n\nevent: x\r\ndata:b\r\ndata: c\r\n\r\n\n\ndata: [DONE]\n\n'
    reader = EventReader(100)
    events = []
    for start in range(0, len(text), size):
        events += reader.feed(text[start : start + size])
    assert events == [b'{"a":1}', b"b\nc", b"[DONE]"]


@pytest.mark.parametrize("piece", [b"x" * 50, b"data: " + b"x" * 44, b"data: xxxxxxxxxx\n" * 5])
def test_events_without_end_are_refused(piece: bytes) -> None:
    reader = EventReader(100)
    with pytest.raises(TooLongError):
        [reader.feed(piece) for _ in range(10)]


def test_a_conversation_stays_where_it_is() -> None:
    balancer = Balancer(["a", "b", "c", "d"], most=100)
    for number in range(20):
        ids = [number] * 40
        first = balancer.choose(prompt(ids))
        # Somebody else is always about.
        with balancer.working(first):
            for turn in range(5):
                ids = ids + [1000 + turn] * 60
                assert balancer.choose(prompt(ids)) is first


def test_new_conversations_go_to_who_has_the_least_to_do() -> None:
    balancer = Balancer(["a", "b", "c"], most=100)
    with contextlib.ExitStack() as stack:
        for number in range(30):
            chosen = balancer.choose(prompt([number] * 40))
            stack.enter_context(balancer.working(chosen))
        assert [backend.load for backend in balancer.backends] == [10, 10, 10]


def test_an_overloaded_engine_loses_its_conversations() -> None:
    balancer = Balancer(["a", "b"], most=100)
    ids = list(range(200))
    first = balancer.choose(prompt(ids))
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(balancer.working(balancer.choose(prompt(ids))))
        loads = sorted(backend.load for backend in balancer.backends)
        assert loads[0] >= 8
    # What it took over, the other one keeps.
    assert balancer.choose(prompt(ids)) in balancer.backends
    assert first.load == 0


def test_a_shared_beginning_alone_does_not_bind() -> None:
    balancer = Balancer(["a", "b"], most=100)
    shared = [7] * 40
    with contextlib.ExitStack() as stack:
        for number in range(10):
            chosen = balancer.choose(prompt(shared + [number + 100] * 2000))
            stack.enter_context(balancer.working(chosen))
        assert [backend.load for backend in balancer.backends] == [5, 5]


def test_processes_agree_on_who_is_first() -> None:
    prompts = [prompt([number] * 40) for number in range(50)]
    one, two = Balancer(["a", "b", "c"], most=9), Balancer(["c", "a", "b"], most=9)
    chosen = [one.choose(each).url for each in prompts]
    assert chosen == [two.choose(each).url for each in prompts]
    assert set(chosen) == {"a", "b", "c"}


def test_full_engines_are_passed_over_and_at_last_refuse() -> None:
    balancer = Balancer(["a", "b"], most=2)
    ids = list(range(200))
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(balancer.working(balancer.choose(prompt(ids))))
        with pytest.raises(EngineError) as refused:
            balancer.choose(prompt(ids))
        assert refused.value.status == 503
        assert refused.value.headers == ((b"retry-after", b"1"),)


def test_what_is_known_of_prompts_is_bounded() -> None:
    balancer = Balancer(["a", "b"], most=2)
    for number in range(70_000):
        balancer.choose(Prompt.of(b'"token_ids":[%d]' % number))
    assert len(balancer._seen) <= 1 << 16


def test_a_prompt_is_known_by_its_ids() -> None:
    short = Prompt.of(body([1, 2, 3]))
    assert len(short.beginnings) == 1
    one = Prompt.of(body(list(range(100, 400))))
    spaced = Prompt.of(json.dumps({"token_ids": list(range(100, 400))}).encode())
    assert len(one.beginnings) == 5
    assert one.beginnings[0].size == 64
    assert spaced.size > one.size
    assert Prompt.of(b"no prompt").size == 0


def test_an_answer_and_a_stream() -> None:
    with engine() as one:

        async def test(remote: RemoteEngine) -> None:
            answer = json.loads(await remote.generate(body([1, 2])))
            assert answer["choices"][0]["token_ids"] == [71, 72]
            chunks = [json.loads(c) async for c in remote.stream(body([1, 2], stream=True))]
            assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[71], [72]]
            assert await remote.healthy()
            await remote.generate(body([1]), request_id="mine")

        run([one], test)
        assert one.headers[-1]["x-request-id"] == "mine"
        assert "x-request-id" not in one.headers[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["refuse", "close", "garbage"])
def test_a_request_that_cannot_be_handed_over_goes_to_another(kind: str, stream: bool) -> None:
    said = b"what?\r\n\r\n" if kind == "garbage" else b""
    with engine() as good, closing(said) as bad:
        broken: Engine | str = unused_url() if kind == "refuse" else bad

        async def test(remote: RemoteEngine) -> None:
            for number in range(20):
                asked = body([number] * 30, stream=stream)
                if stream:
                    assert len([chunk async for chunk in remote.stream(asked)]) == 2
                else:
                    await remote.generate(asked)

        run([broken, good], test)
        assert len(good.requests) == 20
        # Then it is left alone, but for being looked after.
        assert len(bad.requests) <= 3


def test_a_request_is_tried_twice_and_no_more() -> None:
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(closing()) for _ in range(4)]

        async def test(remote: RemoteEngine) -> None:
            with pytest.raises(EngineError) as failed:
                await remote.generate(body([1]))
            assert failed.value.status == 503
            assert [backend.load for backend in remote.balancer.backends] == [0] * 4

        run([*engines], test)
        assert sum(len(one.requests) for one in engines) == 2


def test_an_answer_that_has_begun_is_not_asked_for_again() -> None:
    with engine(fault="cut") as one, engine(fault="cut") as two:

        async def test(remote: RemoteEngine) -> None:
            stream = remote.stream(body([1], stream=True))
            await anext(stream)
            with pytest.raises(EngineError) as failed:
                await anext(stream)
            assert failed.value.status == 502

        run([one, two], test)
        assert len(one.requests) + len(two.requests) == 1


def test_an_engine_that_comes_back_is_used_again() -> None:
    with engine(healthy=False) as one:

        async def test(remote: RemoteEngine) -> None:
            [backend] = remote.balancer.backends
            backend.failed()
            assert not await remote.healthy()
            with pytest.raises(EngineError) as failed:
                await remote.generate(body([1]))
            assert failed.value.status == 503
            await asyncio.sleep(0.6)
            assert not await remote.healthy()
            pause = backend.pause
            assert pause >= 0.5
            one.healthy = True
            await until(lambda: not backend.down)
            await remote.generate(body([1]))
            assert backend.failures == 0

        run([one], test)


def test_pauses_grow_to_a_bound() -> None:
    backend = Balancer(["a"], most=1).backends[0]
    pauses = []
    for _ in range(50):
        backend.failed()
        pauses.append(backend.pause)
    assert pauses[:3] == [0.25, 0.5, 1.0]
    assert max(pauses) == 5.0


def test_whoever_stops_waiting_stops_the_engine() -> None:
    with engine(pause=0.02, says=lambda body: [[1] * 5_000]) as one:

        async def test(remote: RemoteEngine) -> None:
            stream = remote.stream(body([1], stream=True))
            await anext(stream)
            assert one.running == 1
            await stream.aclose()
            one.fault = "hang"
            task = asyncio.create_task(remote.generate(body([1])))
            await until(lambda: len(one.requests) == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: one.left == 2)
            assert [backend.load for backend in remote.balancer.backends] == [0]

        run([one], test)


def test_connections_are_kept_and_used_again() -> None:
    with engine() as one:

        async def test(remote: RemoteEngine) -> None:
            for _ in range(5):
                await remote.generate(body([1]))
                async for _ in remote.stream(body([1], stream=True)):
                    pass
            [pool] = remote._pools.values()
            assert len(pool.connections) == 1

        run([one], test)


def test_the_only_engine_gets_a_second_try() -> None:
    with closing() as one:

        async def test(remote: RemoteEngine) -> None:
            with pytest.raises(EngineError):
                await remote.generate(body([1]))

        run([one], test)
        assert len(one.requests) == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": ["torch", "http://x"]}, "engine: `torch` is no base URL"),
        ({"engine": ["ftp://x"]}, "is no base URL"),
        ({"engine": ["http://u:p@x"]}, "is no base URL"),
        ({"engine": ["http://x:0"]}, "is no base URL"),
        ({"engine": ["http://x:99999"]}, "is no base URL"),
        ({"engine": ["http://x"], "prefill_engine": ["http://y"]}, "give one of them"),
        ({"encode_engine": ["http://x"]}, "need --prefill-engine"),
        ({"decode_engine": ["http://x"]}, "need --prefill-engine"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RenderConfig(**settings)


def test_urls_may_be_separated_by_commas() -> None:
    config = RenderConfig(engine=("http://x:1/,http://y/base/", "http://z"))
    assert config.engine == ("http://x:1", "http://y/base", "http://z")
    assert config.generates
    assert config.hides_scale_out
    assert not RenderConfig().hides_scale_out
