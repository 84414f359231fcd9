import json
import pathlib
import random
from typing import Any

import pytest

from fastrender import Derenderer, Renderer, RequestError
from fastrender.derenderer import DerenderStream

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = 'why</think>Hi <tool_call>{"name": "f", "arguments": {"a": "日本 🦜"}}</tool_call>'


@pytest.fixture(scope="module")
def plain() -> Derenderer:
    return Derenderer()


@pytest.fixture(scope="module")
def parsing() -> Derenderer:
    return Derenderer(
        enable_auto_tool_choice=True, tool_call_parser="hermes", reasoning_parser="qwen3"
    )


def ids_of(derenderer: Derenderer, text: str) -> list[int]:
    request = {"prompt": text, "add_special_tokens": False}
    ids: list[int] = derenderer.renderer.tokenize(request)["tokens"]
    return ids


def response(ids: list[int], **more: Any) -> dict[str, Any]:
    return {"request_id": "r", "choices": [{"index": 0, "token_ids": ids, **more}]}


def chat_request(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}], "tools": [TOOL], **more}


def joined(deltas: list[dict[str, Any]]) -> dict[str, str]:
    message = {"content": "", "reasoning": "", "arguments": "", "name": "", "finish_reason": ""}
    for delta in deltas:
        for key in ("content", "reasoning", "finish_reason"):
            message[key] += delta.get(key) or ""
        for call in delta.get("tool_calls", []):
            message["name"] += call["function"]["name"] or ""
            message["arguments"] += call["function"]["arguments"] or ""
    return message


def test_a_dict_gives_a_dict_and_bytes_give_bytes(plain: Derenderer) -> None:
    body = {"generate_response": response(ids_of(plain, "Hello world"))}
    answer = plain.derender("chat", body)
    assert answer["choices"][0]["message"]["content"] == "Hello world"
    raw = json.loads(plain.derender("chat", json.dumps(body).encode()))
    assert {**raw, "created": 0} == {**answer, "created": 0}
    assert list(answer)[:4] == ["id", "object", "created", "model"]


def test_completions_are_renumbered(plain: Derenderer) -> None:
    one, two = ids_of(plain, "one"), ids_of(plain, "two")
    body = {"generate_responses": [response(one), response(two)], "prompt_tokens": [3, 4]}
    answer = plain.derender("completions", body)
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [
        (0, "one"),
        (1, "two"),
    ]
    assert answer["usage"]["prompt_tokens"] == 7
    assert answer["usage"]["total_tokens"] == 7 + len(one) + len(two)


def test_an_unknown_route_is_named(plain: Derenderer) -> None:
    with pytest.raises(ValueError, match="unknown route `render`; known: chat, completions"):
        plain.derender("render", {})


def test_a_body_without_an_answer_raises(plain: Derenderer) -> None:
    with pytest.raises(RequestError) as raised:
        plain.derender("chat", {"model": "other", "generate_response": response([1])})
    assert (raised.value.status, raised.value.param) == (404, "model")


@pytest.mark.parametrize("sizes", [[1], [2], [3, 1], [1000]])
def test_a_stream_gives_what_the_whole_does(parsing: Derenderer, sizes: list[int]) -> None:
    ids = ids_of(parsing, CALL)
    whole = parsing.derender(
        "chat",
        {
            "generate_response": response(ids, finish_reason="stop"),
            "prompt_token_ids": [1, 2],
            "chat_request": chat_request(),
        },
    )
    stream = parsing.stream({"chat_request": chat_request(), "prompt_token_ids": [1, 2]})
    deltas = []
    start = 0
    while start < len(ids):
        size = sizes[start % len(sizes)]
        deltas += stream.push(ids[start : start + size])
        start += size
    deltas += stream.finish()
    message = joined(deltas)
    told = whole["choices"][0]["message"]
    call = told["tool_calls"][0]["function"]
    assert message["reasoning"] == told["reasoning"] == "why"
    assert message["content"].strip() == told["content"].strip() == "Hi"
    assert json.loads(message["arguments"]) == json.loads(call["arguments"]) == {"a": "日本 🦜"}
    assert message["name"] == call["name"] == "f"
    assert message["finish_reason"] == whole["choices"][0]["finish_reason"] == "tool_calls"
    assert deltas[0]["role"] == "assistant"


def test_a_plain_stream_holds_back_half_a_character(plain: Derenderer) -> None:
    stream = plain.stream()
    ids = ids_of(plain, "👩‍👩‍👧 ď 日本")
    deltas = [delta for token in ids for delta in stream.push([token])] + stream.finish()
    assert joined(deltas)["content"] == "👩‍👩‍👧 ď 日本"
    assert all("\ufffd" not in delta.get("content", "") for delta in deltas)


def test_completions_stream_text(plain: Derenderer) -> None:
    stream = plain.stream(
        {"completion_request": {"prompt": "x", "stop": ["lo w"]}}, route="completions"
    )
    assert isinstance(stream, DerenderStream)
    ids = ids_of(plain, "Hello world")
    deltas = [delta for token in ids for delta in stream.push([token])]
    deltas += stream.finish()
    assert "".join(delta.get("text", "") for delta in deltas) == "Hel"
    assert deltas[-1]["stop_reason"] == "lo w"


def test_nothing_is_loaded_twice() -> None:
    renderer = Renderer()
    assert Derenderer.from_renderer(renderer).renderer is renderer


def test_parsers_that_are_found_by_the_model_are_said(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    from folders import LLAMA, write_folder

    template = "{% if tools %}<tool_call>{% endif %}<think>"
    qwen = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    files = {"config.json": qwen, "tokenizer_config.json": {"chat_template": template}}
    folder = write_folder(tmp_path, files)
    with caplog.at_level("INFO", "fastrender.parsers"):
        found = Derenderer(
            folder,
            enable_auto_tool_choice=True,
            tool_call_parser="auto",
            reasoning_parser="auto",
        )
    assert "--tool-call-parser auto is `hermes` for Qwen3ForCausalLM" in caplog.text
    assert "--reasoning-parser auto is `qwen3` for Qwen3ForCausalLM" in caplog.text
    ids = ids_of(found, "why</think>Hi")
    body = {
        "generate_response": response(ids),
        "prompt_token_ids": [1],
        "chat_request": chat_request(),
    }
    assert found.derender("chat", body)["choices"][0]["message"]["reasoning"] == "why"


def test_a_model_without_a_known_format_is_refused(tmp_path: pathlib.Path) -> None:
    from folders import LLAMA, write_folder

    folder = write_folder(tmp_path, {"config.json": LLAMA})
    with pytest.raises(ValueError, match="auto finds no format for"):
        Derenderer(folder, enable_auto_tool_choice=True, tool_call_parser="auto")


def test_a_format_of_ones_own_is_used(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.toml"
    hermes = pathlib.Path(__file__).parents[2] / "rust/core/src/parser/formats/tools/hermes.toml"
    text = hermes.read_text(encoding="utf-8")
    lines = [
        'names = ["mine"]' if line.startswith("names") else line.replace("tool_call>", "own_call>")
        for line in text.splitlines()
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    own = Derenderer(
        enable_auto_tool_choice=True, tool_call_parser="mine", tool_parser_file=(str(file),)
    )
    ids = ids_of(own, '<own_call>{"name": "f", "arguments": {"a": 1}}</own_call>')
    body = {"generate_response": response(ids), "chat_request": chat_request()}
    calls = own.derender("chat", body)["choices"][0]["message"]["tool_calls"]
    assert json.loads(calls[0]["function"]["arguments"]) == {"a": 1}


def test_threads_share_a_derenderer(parsing: Derenderer) -> None:
    import concurrent.futures

    bodies = []
    for i in range(24):
        ids = ids_of(parsing, f"r{i}</think>answer {i}" * random.Random(i).randint(1, 3))
        bodies.append({"generate_response": response(ids), "chat_request": chat_request()})
    one_by_one = [parsing.derender("chat", body)["choices"] for body in bodies]

    def choices(body: dict[str, Any]) -> Any:
        return parsing.derender("chat", body)["choices"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(choices, bodies))
    assert at_once == one_by_one
