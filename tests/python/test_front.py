import asyncio
import base64
import concurrent.futures
import contextlib
import gc
import io
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI
from PIL import Image

import fake_engine
from fake_engine import Engine, engine, until, unused_url
from fastrender import Renderer
from fastrender.config import RenderConfig
from fastrender.engine.choose import remote_engine
from fastrender.engine.remote import RemoteEngine
from fastrender.server.app import Application

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


@contextlib.contextmanager
def front(renderer: Renderer, **settings: Any) -> Iterator[httpx.Client]:
    config = RenderConfig(**settings)
    application = Application(renderer, config, engine=remote_engine(config))
    running = fake_engine.serving(application, start=application.start, stop=application.stop)
    with running as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client
        until(lambda: application.in_flight == 0)


@pytest.fixture
def one() -> Iterator[Engine]:
    with engine() as running:
        yield running


@pytest.fixture
def http(renderer: Renderer, one: Engine) -> Iterator[httpx.Client]:
    with front(renderer, engine=[one.url]) as client:
        yield client


def says(one: Engine, renderer: Renderer, *texts: str) -> list[list[int]]:
    outputs = [
        renderer.tokenize({"prompt": text, "add_special_tokens": False})["tokens"] for text in texts
    ]
    one.says = lambda body: outputs
    return outputs


def events(text: str) -> list[Any]:
    parts = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]


def test_a_whole_chat_answer(http: httpx.Client, one: Engine, renderer: Renderer) -> None:
    [ids] = says(one, renderer, "Hello there")
    answer = http.post(CHAT, json={"messages": USER, "max_tokens": 7})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "fastrender/tiny"
    [choice] = body["choices"]
    assert choice["message"]["content"] == "Hello there"
    assert choice["finish_reason"] == "stop"
    [request] = one.requests
    prompt = renderer.render_chat({"messages": USER, "max_tokens": 7})
    assert request["token_ids"] == prompt["token_ids"]
    assert request["sampling_params"] == prompt["sampling_params"]
    assert request["stream"] is False
    count = len(request["token_ids"])
    assert body["usage"]["prompt_tokens"] == count
    assert body["usage"]["completion_tokens"] == len(ids)
    assert body["usage"]["total_tokens"] == count + len(ids)


def test_the_openai_client_streams_chat(
    http: httpx.Client, one: Engine, renderer: Renderer
) -> None:
    [ids] = says(one, renderer, "Hello there, größer 🙂")
    client = OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(
        model="fastrender/tiny",
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == "Hello there, größer 🙂"
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert reasons[-1] == "stop"
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert chunks[0].id.startswith("chatcmpl-")
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == len(ids)
    assert [bool(chunk.usage) for chunk in chunks].count(True) == 1


def test_the_openai_client_gets_completions(
    http: httpx.Client, one: Engine, renderer: Renderer
) -> None:
    one.says = lambda body: [[*body["token_ids"], number] for number in (65, 66)]
    client = OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)
    answer = client.completions.create(model="fastrender/tiny", prompt=["ab", "cd"], n=2)
    assert [choice.text[:2] for choice in answer.choices] == ["ab", "ab", "cd", "cd"]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.id.startswith("cmpl-")
    assert not answer.id.endswith("-0")
    assert answer.usage is not None
    whole = {choice.index: choice.text for choice in answer.choices}
    stream = client.completions.create(
        model="fastrender/tiny",
        prompt=["ab", "cd"],
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    told: dict[int, str] = dict.fromkeys(range(4), "")
    ids = set()
    usages = []
    for chunk in stream:
        ids.add(chunk.id)
        usages += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            told[choice.index] += choice.text
    assert told == whole
    assert len(ids) == 1
    assert [usage.total_tokens for usage in usages] == [answer.usage.total_tokens]


def test_a_completion_gets_no_more_than_its_sixteen_tokens(http: httpx.Client, one: Engine) -> None:
    # On the wire an absent `max_tokens` means 16, but to engines as much as there is place for.
    assert http.post(COMPLETIONS, json={"prompt": "x"}).status_code == 200
    assert one.requests[0]["sampling_params"]["max_tokens"] == 16


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = 'why</think>Hi <tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'


def test_tools_and_reasoning(one: Engine) -> None:
    renderer = Renderer(
        enable_auto_tool_choice=True, tool_call_parser="hermes", reasoning_parser="qwen3"
    )
    says(one, renderer, CALL)
    with front(renderer, engine=[one.url]) as http:
        client = OpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0)
        request: Any = {"model": "fastrender/tiny", "messages": USER, "tools": [TOOL]}
        [choice] = client.chat.completions.create(**request).choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "Hi "
        assert choice.message.model_dump()["reasoning"] == "why"
        [call] = choice.message.model_dump()["tool_calls"]
        assert call["function"] == {"name": "f", "arguments": '{"a": "x"}'}
        told = {"content": "", "reasoning": "", "arguments": "", "finish": ""}
        names = []
        for chunk in client.chat.completions.create(**request, stream=True):
            [delta] = [choice.delta.model_dump() for choice in chunk.choices]
            told["content"] += delta["content"] or ""
            told["reasoning"] += delta["reasoning"] or ""
            for part in delta.get("tool_calls") or []:
                told["arguments"] += part["function"]["arguments"] or ""
                names.append(part["function"]["name"])
            told["finish"] += chunk.choices[0].finish_reason or ""
        want = {"content": "Hi ", "reasoning": "why", "arguments": '{"a": "x"}'}
        assert told == {**want, "finish": "tool_calls"}
        assert [name for name in names if name] == ["f"]


def test_calls_of_earlier_turns_are_counted(one: Engine) -> None:
    renderer = Renderer(enable_auto_tool_choice=True, tool_call_parser="kimi_k2")
    text = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>"
        "{}<|tool_call_end|><|tool_calls_section_end|>"
    )
    says(one, renderer, text)
    call = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *USER,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.f:0", "content": "done"},
    ]
    with front(renderer, engine=[one.url]) as http:
        answer = http.post(CHAT, json={"messages": messages, "tools": [TOOL]}).json()
        own = renderer.render_chat({"messages": messages, "tools": [TOOL]})
        derendered = renderer.render(
            "chat_derender",
            json.dumps(
                {
                    "chat_request": {"messages": messages, "tools": [TOOL]},
                    "prompt_token_ids": own["token_ids"],
                    "generate_response": {
                        "request_id": answer["id"],
                        "choices": [{"index": 0, "token_ids": one.says({})[0]}],
                    },
                }
            ).encode(),
        )
        assert answer["choices"] == json.loads(derendered)["choices"]


@pytest.mark.parametrize("chunk_tokens", [1, 3, 50])
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_end_answers_of_engines_that_know_none(
    http: httpx.Client, one: Engine, renderer: Renderer, stream: bool, chunk_tokens: int
) -> None:
    text = "one two three four five six seven eight nine ten"
    [ids] = says(one, renderer, text)
    one.chunk_tokens = chunk_tokens
    one.finish_reason = "length"
    body = {
        "messages": USER,
        "stop": ["four", "never"],
        "stream": stream,
        "stream_options": {"include_usage": True} if stream else None,
        "return_token_ids": True,
    }
    answer = http.post(CHAT, json=body)
    assert one.requests[0]["sampling_params"]["stop"] == []
    # Up to the token with which the string is complete.
    kept = next(
        n for n in range(len(ids)) if "four" in renderer.detokenize({"tokens": ids[:n]})["prompt"]
    )
    if stream:
        told = events(answer.text)
        assert told.pop() == "[DONE]"
        usage = told.pop()["usage"]
        choices = [chunk["choices"][0] for chunk in told]
        said = "".join(choice["delta"]["content"] or "" for choice in choices)
        tokens = [token for choice in choices for token in choice["token_ids"] or []]
        last = choices[-1]
    else:
        [last] = answer.json()["choices"]
        said, tokens, usage = last["message"]["content"], last["token_ids"], answer.json()["usage"]
    assert said == "one two three "
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", "four")
    assert tokens == ids[:kept]
    assert usage["completion_tokens"] == kept


def test_a_met_stop_string_stops_the_engine(
    http: httpx.Client, one: Engine, renderer: Renderer
) -> None:
    says(one, renderer, "a b stop " + "x " * 10_000)
    one.pause = 0.001
    body = {"messages": USER, "stop": "stop"}
    assert http.post(CHAT, json=body).json()["choices"][0]["message"]["content"] == "a b "
    until(lambda: one.left == 1)
    assert one.running == 0
    assert one.chunks_sent < 1000


def test_each_choice_meets_its_own_stop_string(
    http: httpx.Client, one: Engine, renderer: Renderer
) -> None:
    says(one, renderer, "a stop b c d e", "a b c d stop e", "a b")
    body = {"prompt": "x", "n": 3, "temperature": 1, "stop": "stop"}
    whole = http.post(COMPLETIONS, json=body).json()["choices"]
    assert [choice["text"] for choice in whole] == ["a ", "a b c d ", "a b"]
    assert [choice["stop_reason"] for choice in whole] == ["stop", "stop", None]
    told = ["", "", ""]
    for chunk in events(http.post(COMPLETIONS, json={**body, "stream": True}).text)[:-1]:
        for choice in chunk["choices"]:
            told[choice["index"]] += choice["text"]
    assert told == ["a ", "a b c d ", "a b"]


def test_logprobs(http: httpx.Client, one: Engine, renderer: Renderer) -> None:
    [ids] = says(one, renderer, "Hello")
    one.logprobs = True
    body = {"messages": USER, "logprobs": True, "top_logprobs": 1}
    [choice] = http.post(CHAT, json=body).json()["choices"]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == "Hello"
    assert len(content) == len(ids)
    assert one.requests[0]["sampling_params"]["logprobs"] == 1
    told = events(http.post(CHAT, json={**body, "stream": True, "stop": "zzz"}).text)[:-1]
    parts = [chunk["choices"][0]["logprobs"] for chunk in told]
    assert [entry for part in parts if part for entry in part["content"]] == content


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_echoes_its_prompt(
    http: httpx.Client, one: Engine, renderer: Renderer, stream: bool
) -> None:
    says(one, renderer, " world")

    def texts(prompt: Any, **more: Any) -> list[str]:
        body = {"prompt": prompt, "echo": True, "stream": stream, **more}
        answer = http.post(COMPLETIONS, json=body)
        chunks = events(answer.text)[:-1] if stream else [answer.json()]
        told: dict[int, str] = {}
        for chunk in chunks:
            for choice in chunk["choices"]:
                told[choice["index"]] = told.get(choice["index"], "") + choice["text"]
        return [told[index] for index in sorted(told)]

    assert texts("Hello") == ["Hello world"]
    assert texts(["Hello", "Bye"]) == ["Hello world", "Bye world"]
    ids = renderer.tokenize({"prompt": "Hello", "add_special_tokens": False})["tokens"]
    assert texts(ids) == ["Hello world"]
    assert texts("Hello", max_tokens=0) == ["Hello"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_has_its_logprobs(
    http: httpx.Client, one: Engine, renderer: Renderer, stream: bool
) -> None:
    [ids] = says(one, renderer, " world")
    one.logprobs = True
    prompt = renderer.tokenize({"prompt": "Hello", "add_special_tokens": False})["tokens"]
    entry = {"logprob": -2.0, "rank": 3, "decoded_token": "?"}
    rest: list[Any] = [{str(token): entry} for token in prompt[1:]]
    one.more = {"prompt_logprobs": [None, *rest]}
    body = {"prompt": "Hello", "echo": True, "logprobs": 1, "stream": stream}
    answer = http.post(COMPLETIONS, json=body)
    [choice] = (events(answer.text)[0] if stream else answer.json())["choices"]
    assert choice["text"] == "Hello world"
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == "Hello world"
    want = [None, *[-2.0] * len(rest), *[-0.5] * len(ids)]
    assert logprobs["token_logprobs"] == want
    assert logprobs["text_offset"][0] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_echoes_the_message_that_it_continues(
    http: httpx.Client, one: Engine, renderer: Renderer, stream: bool
) -> None:
    says(one, renderer, " world")
    body = {
        "messages": [*USER, {"role": "assistant", "content": "Hello"}],
        "echo": True,
        "add_generation_prompt": False,
        "continue_final_message": True,
        "stream": stream,
    }
    answer = http.post(CHAT, json=body)
    if stream:
        told = [chunk["choices"][0]["delta"]["content"] for chunk in events(answer.text)[:-1]]
        assert "".join(text or "" for text in told) == "Hello world"
    else:
        assert answer.json()["choices"][0]["message"]["content"] == "Hello world"


def test_requests_that_cannot_be_rendered_reach_no_engine(http: httpx.Client, one: Engine) -> None:
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"messages": []}, 400, "BadRequestError"),
        ({"messages": USER, "model": "other"}, 404, "NotFoundError"),
        ({"messages": USER, "temperature": 9}, 400, "BadRequestError"),
    ]
    for body, status, kind in cases:
        for stream in (False, True):
            answer = http.post(CHAT, json={**body, "stream": stream})
            assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)
    assert http.post(CHAT, content=b"{", headers={"content-type": "text/plain"}).status_code == 400
    assert one.requests == []


REFUSED = {"message": "no such luck", "type": "BadRequestError", "param": "seed"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [
        ("status:400", 400, "BadRequestError"),
        ("status:409", 409, "BadRequestError"),
        ("status:401", 502, "BadGatewayError"),
        ("status:403", 502, "BadGatewayError"),
        ("status:429", 429, "TooManyRequestsError"),
        ("status:500", 502, "BadGatewayError"),
        ("status:503", 503, "ServiceUnavailableError"),
        ("hang", 504, "GatewayTimeoutError"),
        ("garbage", 502, "BadGatewayError"),
        ("no-json", 502, "BadGatewayError"),
        ("empty", 502, "BadGatewayError"),
        ("huge", 502, "BadGatewayError"),
    ],
)
def test_an_engine_that_fails(
    renderer: Renderer, one: Engine, fault: str, status: int, kind: str, stream: bool
) -> None:
    if fault == "empty" and stream:
        one.says = lambda body: [[]]
    one.fault = fault
    one.refusal = {"error": REFUSED}
    settings = {"engine_timeout": 0.5, "engine_answer_bytes": 1_000_000}
    with front(renderer, engine=[one.url], **settings) as http:
        answer = http.post(CHAT, json={"messages": USER, "stream": stream})
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["code"]) == (status, kind, status)
        if status in (400, 409):
            assert (error["message"], error["param"]) == ("no such luck", "seed")
        if status in (429, 503):
            assert answer.headers["retry-after"] == "7"
        until(lambda: one.running == 0)
        # It goes on serving.
        one.fault = ""
        one.says = lambda body: [[104]]
        assert http.post(CHAT, json={"messages": USER}).status_code == 200


@pytest.mark.parametrize(
    ("fault", "code"), [("cut", 502), ("no-done", 502), ("error-event", 400), ("slow", 504)]
)
def test_an_engine_that_fails_in_the_middle_of_a_stream(
    renderer: Renderer, one: Engine, fault: str, code: int
) -> None:
    says(one, renderer, "Hello there you")
    one.fault = fault
    one.refusal = {**REFUSED, "code": 400}
    with front(renderer, engine=[one.url], engine_timeout=0.5) as http:
        answer = http.post(CHAT, json={"messages": USER, "stream": True})
        assert answer.status_code == 200
        told = events(answer.text)
        assert told[-1] == "[DONE]"
        assert told[-2]["error"]["code"] == code
        assert told[0]["choices"][0]["delta"]["content"]


def test_no_engine_at_all(renderer: Renderer) -> None:
    with front(renderer, engine=[unused_url()]) as http:
        for stream in (False, True):
            answer = http.post(CHAT, json={"messages": USER, "stream": stream})
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
        assert http.get("/ping").status_code == 503
        assert http.get("/health").status_code == 200
        assert http.get("/v1/models").json()["data"][0]["id"] == "fastrender/tiny"


def test_scale_out_routes_are_off_unless_asked_for(renderer: Renderer, one: Engine) -> None:
    routes = [
        *(f"{route}/{half}" for route in (CHAT, COMPLETIONS) for half in ("render", "derender")),
        f"{CHAT}/derender/stream",
        "/inference/v1/generate",
    ]
    with front(renderer, engine=[one.url]) as http:
        for route in routes:
            answer = http.post(route, json={"messages": USER})
            assert answer.status_code == 403
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == ("PermissionDeniedError", 403)
        assert http.post("/tokenize", json={"prompt": "x"}).status_code == 200
    with front(renderer, engine=[one.url], enable_scale_out=True) as http:
        answer = http.post(f"{CHAT}/render", json={"messages": USER})
        assert answer.status_code == 200
        assert http.post(CHAT, json={"messages": USER}).status_code == 200


def test_the_key_of_engines_is_sent(renderer: Renderer, one: Engine) -> None:
    with front(renderer, engine=[one.url], engine_api_key="k") as http:
        assert http.post(CHAT, json={"messages": USER}).status_code == 200
    assert one.headers[0]["authorization"] == "Bearer k"


def test_request_ids_of_clients_are_kept(http: httpx.Client, one: Engine) -> None:
    headers = {"x-request-id": "mine"}
    answer = http.post(CHAT, json={"messages": USER}, headers=headers)
    assert answer.json()["id"] == "chatcmpl-mine"
    assert one.requests[0]["request_id"] == "chatcmpl-mine"


def picture(colour: tuple[int, int, int]) -> dict[str, Any]:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def pictures(*colours: tuple[int, int, int]) -> list[dict[str, Any]]:
    parts = [*map(picture, colours), {"type": "text", "text": "what?"}]
    return [{"role": "user", "content": parts}]


@pytest.mark.parametrize("stream", [False, True])
def test_images_go_to_the_engine_as_they_are_rendered(
    http: httpx.Client, one: Engine, renderer: Renderer, stream: bool
) -> None:
    says(one, renderer, "Red and blue, stop here")
    messages = pictures((255, 0, 0), (0, 0, 255))
    body = {"messages": messages, "stream": stream, "stop": "stop"}
    answer = http.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    if stream:
        told = events(answer.text)[:-1]
        said = "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in told)
    else:
        said = answer.json()["choices"][0]["message"]["content"]
    assert said == "Red and blue, "
    [request] = one.requests
    rendered = renderer.render_chat({"messages": messages})
    assert request["features"] == rendered["features"]
    assert len(request["features"]["kwargs_data"]["image"]) == 2
    assert request["token_ids"] == rendered["token_ids"]


def test_a_client_that_leaves_is_not_worked_for(
    http: httpx.Client, one: Engine, renderer: Renderer
) -> None:
    one.pause = 0.02
    says(one, renderer, "x " * 5_000)
    with http.stream("POST", CHAT, json={"messages": USER, "stream": True}) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        assert one.running == 1
    until(lambda: one.left == 1)
    assert one.running == 0
    # One that waits for a whole answer, too.
    one.fault = "hang"
    with pytest.raises(httpx.ReadTimeout):
        http.post(CHAT, json={"messages": USER}, timeout=0.3)
    until(lambda: one.left == 2)
    # And one with several prompts.
    one.fault = ""
    body = {"prompt": ["a", "b", "c"], "stream": True}
    with http.stream("POST", COMPLETIONS, json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        until(lambda: one.running == 3)
    until(lambda: one.left == 5)
    assert one.running == 0


def test_a_slow_client_slows_the_engine_down(
    renderer: Renderer, http: httpx.Client, one: Engine
) -> None:
    says(one, renderer, "x " * 40_000)
    one.chunk_tokens = 1
    url = httpx.URL(str(http.base_url))
    body = json.dumps({"messages": USER, "stream": True, "logprobs": True}).encode()
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: one.chunks_sent > 100)
        # Until all buffers between are full.
        sent = -1
        while sent != one.chunks_sent:
            sent = one.chunks_sent
            time.sleep(0.5)
        assert sent < 40_000
        assert one.running == 1

    def left() -> bool:
        # A server's generator that was left where it gave something out ends when it is collected.
        gc.collect()
        return one.left == 1

    until(left)


def test_fifty_clients_that_leave_in_the_middle_leave_nothing(
    renderer: Renderer, one: Engine
) -> None:
    says(one, renderer, "x " * 5_000)
    one.pause = 0.01
    config = RenderConfig(engine=(one.url,))
    remote = remote_engine(config)
    assert isinstance(remote, RemoteEngine)
    application = Application(renderer, config, engine=remote)
    loops: list[asyncio.AbstractEventLoop] = []

    async def start() -> None:
        loops.append(asyncio.get_running_loop())
        await application.start()

    with fake_engine.serving(application, start=start, stop=application.stop) as url:

        def leave(number: int) -> None:
            with (
                httpx.Client(base_url=url, timeout=20) as client,
                client.stream("POST", CHAT, json={"messages": USER, "stream": True}) as answer,
            ):
                lines = answer.iter_lines()
                for _ in range(number % 7 + 1):
                    next(lines)

        def tasks() -> int:
            return len(asyncio.all_tasks(loops[0]))

        leave(0)
        until(lambda: application.in_flight == 0)
        until(lambda: one.running == 0)
        before = tasks()
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            list(pool.map(leave, range(50)))
        until(lambda: application.in_flight == 0)
        until(lambda: one.running == 0)
        assert one.left == 51
        assert [backend.load for backend in remote.balancer.backends] == [0]
        until(lambda: tasks() <= before)
        # What was held of them is free again.
        assert application.held_bytes == 0
        with httpx.Client(base_url=url, timeout=20) as client:
            one.pause = 0
            one.says = lambda body: [[104]]
            assert client.post(CHAT, json={"messages": USER}).status_code == 200
