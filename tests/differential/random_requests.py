"""Random render requests, valid and not, and what of an answer is comparable.

Deterministic in their seed; used against running servers, and to record golden answers of the reference.
"""

import json
import random
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Body = dict[str, Any]
RANDOM_ID = re.compile(r"(chatcmpl-|cmpl-)[0-9a-f]{16}")

WORDS = [
    "hello", "world", "naïve", "日本語", "🦜", "a\nb", "  ", "\t", "", "x" * 40, "<|im_end|>", "<think>", "</think>",
    "é", "1234567", "it's", "\r\n", "{{ x }}", "<b>&'\"", "\u200d", "None", "true",
]  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"zulu": {"type": "string"}, "alpha": {"type": "integer"}},
    "required": ["zulu"],
}


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(0, 6)))


def tool(rng: random.Random) -> Any:
    function: Body = {"name": rng.choice(["f", "get_weather", "g"])}
    if rng.random() < 0.6:
        function["description"] = rng.choice([text(rng), None])
    if rng.random() < 0.7:
        function["parameters"] = rng.choice([SCHEMA, {}, None, {"b": 1.0, "a": [1e-7, 2**70]}])
    if rng.random() < 0.2:
        function[rng.choice(["strict", "defer_loading", "extra"])] = rng.choice([True, False, None])
    out: Body = {"type": "function", "function": function}
    if rng.random() < 0.1:
        out[rng.choice(["defer_loading", "extra", "type"])] = rng.choice(
            [True, "function", None, "other"]
        )
    return rng.choice([out] * 30 + [5, {"function": {}}, {"type": "function"}])


def content(rng: random.Random) -> Any:
    part = rng.choice([
        {"type": "text", "text": text(rng)}, {"type": "text", "text": text(rng), "cache_control": {"type": "ephemeral"}},
        {"type": "refusal", "refusal": text(rng)}, {"type": "thinking", "thinking": "h"}, "plain", {"type": "nope"},
        {"type": "input_text", "text": "t"}, {"text": "t"}, {"type": "text", "text": None}, 5,
    ])  # fmt: skip
    simple = {"type": "text", "text": text(rng)}
    return rng.choice(
        [text(rng)] * 30
        + [[simple], [simple, simple]] * 4
        + [None, [], [simple], [simple, simple], [part], [simple, part], 5]
    )


def call(rng: random.Random) -> Any:
    arguments = rng.choice(
        ["{}", '{"z": 1, "a": 2}', "", "null", "[]", '{"a":', "42", '{"s": "é<", "n": {"y": 1.0}}']
    )
    out: Body = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
    }
    if rng.random() < 0.1:
        out.pop(rng.choice(["id", "type", "function"]))
    return out


def message(rng: random.Random) -> Any:
    role = rng.choice(
        ["user"] * 12 + ["assistant"] * 8 + ["system", "tool", "developer", "function", "wizard"]
    )
    out: Body = {"role": role, "content": content(rng)}
    extras: list[tuple[float, str, Callable[[], Any]]] = [
        (0.05, "name", lambda: rng.choice(["alice", 5])),
        (0.1, "reasoning", lambda: rng.choice(["because", None, 5])),
        (0.1, "reasoning_content", lambda: "why"),
        (0.05, "custom", lambda: 1),
        (
            0.3 if role == "assistant" else 0.03,
            "tool_calls",
            lambda: rng.choice([[call(rng)], [call(rng), call(rng)], [], None]),
        ),
        (0.7 if role == "tool" else 0.03, "tool_call_id", lambda: rng.choice(["call_1", None])),
    ]
    for chance, key, value in extras:
        if rng.random() < chance:
            out[key] = value()
    if rng.random() < 0.01:
        out.pop(rng.choice(list(out)))
    return out


def sampling(rng: random.Random) -> Body:
    fields: dict[str, list[Any]] = {
        "n": [1, 2, 0, "3", None, 99999, 1.0],
        "temperature": [0, 0.5, 1, 2, 2.5, -1, "0.7", None, 0.001],
        "top_p": [1, 0.5, 0, 1.5, None], "top_k": [0, -1, 5, -2, "7", None, 2.0], "min_p": [0, 0.1, 1.5, None],
        "presence_penalty": [0, 1, -2, 3, None], "frequency_penalty": [0.5, 2.5], "repetition_penalty": [1.1, 0, -1, None],
        "seed": [1, -1, None, 2**63, "12"], "stop": ["END", ["a", "bcd"], [], "", [""], ["1", "2", "3", "4", "5"], None, 5],
        "stop_token_ids": [[1, 2, 1], [], None, ["3"], "x"], "ignore_eos": [True, "yes", None, 5],
        "min_tokens": [0, 3, -1, 10**6, None], "max_tokens": [1, 16, 17, 0, -1, 10**9, None, "5", 3.0, 3.5],
        "skip_special_tokens": [True, False, None], "spaces_between_special_tokens": [True, False, 0],
        "include_stop_str_in_output": [True, False], "stream": [True, False, None], "prompt_logprobs": [0, 1, -1, -2, "1", None],
        "stream_options": [{"include_usage": True}, {}, None, {"continuous_usage_stats": None}, 5],
        "logit_bias": [{"5": 1, "7": -200}, {"x": 1}, {}, None, {"5": "2"}, {" 6 ": 1}], "allowed_token_ids": [[1, 2], [], None],
        "bad_words": [["a", "b", "a"], [], [""], None], "thinking_token_budget": [0, 5, -1, -2, True, None, 1.5],
        "vllm_xargs": [{"k": "v", "l": [1, 2.5]}, {}, None, {"k": None}, {"k": 2**65}],
        "repetition_detection": [{"max_pattern_size": 3, "min_count": 2}, {"max_pattern_size": 3}, {}, None],
        "response_format": [{"type": "text"}, {"type": "json_object"}, {"type": "json_schema"}, {"type": "nope"}, {},
                            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}, None],
        "structured_outputs": [{"choice": ["a"]}, {"regex": "a", "json": {}}, {}, {"json": SCHEMA, "whitespace_pattern": "x"},
                               {"grammar": "root ::= x", "disable_any_whitespace": True}, {"json_object": True}, None],
        "priority": [0, 3, -2, "4", None], "cache_salt": ["pepper", "", "a/b", "x" * 129, None, 5],
        "request_id": ["my-id", None, 5], "return_token_ids": [True, False, None], "truncate_prompt_tokens": [-1, 0, 1, 5, 10**9, -2, None, "6"],
        "truncation_side": ["left", "right", "up", None], "return_token_offsets": [True, False, None],
        "add_special_tokens": [True, False, None], "use_beam_search": [True, False], "stream_interval": [1, 0, None],
        "kv_transfer_params": [{"a": 1}, {}, None, {"prompt_token_ids": [1, 2]}, {"prompt_token_ids": []}, {"prompt_token_ids": [10**8], "b": 2}],
        "ec_transfer_params": [{"e": [1]}, {}, None], "model": ["m", "nope", "", None], "user": ["u", None], "watermarking": [True, None],
        "routed_experts_prompt_start": [0, 2, -1], "length_penalty": [1.0, "x"], "mm_payload": ["none", "tensors", "x"],
        "media_io_kwargs": [{}, None, {"image": {}}, {"image": 1}], "mm_processor_kwargs": [{}, None, {"a": 1}], "foo": [1],
        "logprob_token_ids": [[1], [], None], "min_pixels": [1],
    }  # fmt: skip
    chosen = rng.sample(sorted(fields), k=rng.choice([0, 0, 0, 0, 1, 1, 1, 2, 2, 4]))
    return {key: rng.choice(fields[key]) for key in chosen}


def chat(rng: random.Random) -> tuple[str, Body]:
    body: Body = {
        "messages": [message(rng) for _ in range(rng.randint(1, 4))],
        "model": "m",
        **sampling(rng),
    }
    if rng.random() < 0.3:
        body["tools"] = rng.choice([[tool(rng)], [tool(rng), tool(rng)], [], None])
        if rng.random() < 0.8:
            body["tool_choice"] = rng.choice(
                [
                    "none",
                    "none",
                    "none",
                    "auto",
                    "required",
                    None,
                    {"type": "function", "function": {"name": "f"}},
                    "x",
                    5,
                ]
            )
    options: dict[str, list[Any]] = {
        "add_generation_prompt": [True, False, None], "continue_final_message": [True, False], "logprobs": [True, False, None, 1],
        "top_logprobs": [0, 2, -1, -2, None, "x"], "max_completion_tokens": [5, 16, 0, None, 10**9], "reasoning_effort": ["low", "none", "wild", None],
        "include_reasoning": [True, False, None], "parallel_tool_calls": [True, False, None], "echo": [True, False],
        "documents": [[{"title": "t", "text": "x"}], [], None, [{"a": 1}]], "chat_template": ["{{ messages }}", None],
        "chat_template_kwargs": [{"enable_thinking": False}, {"add_generation_prompt": False, "x": None}, {}, None, {"tools": [{"a": 1}]},
                                 {"conversation": 1}, {"messages": []}, {"chat_template": "x"}, {"tokenize": True}, {"documents": None, "reasoning_effort": "auto"}],
    }  # fmt: skip
    for key in rng.sample(sorted(options), k=rng.choice([0, 0, 1, 1, 2, 3])):
        body[key] = rng.choice(options[key])
    if rng.random() < 0.02:
        body["messages"] = rng.choice([[], None, "x", 5, {"a": 1}])
    return "/v1/chat/completions/render", body


def completion(rng: random.Random) -> tuple[str, Body]:
    prompts: list[Any] = [
        text(rng),
        text(rng) + "x",
        [text(rng), "b"],
        [1, 2, 3],
        [[1], [2, 3]],
        [],
        [[]],
        ["a", 1],
        None,
        5,
        ["1", "2"],
        [1.0, True],
    ]
    body: Body = {"prompt": rng.choice(prompts[:5] * 4 + prompts), "model": "m", **sampling(rng)}
    options: dict[str, list[Any]] = {
        "echo": [True, False, None],
        "logprobs": [0, 3, -1, -2, True, "x", None],
        "suffix": ["x", "", None],
    }
    for key in rng.sample(sorted(options), k=rng.choice([0, 0, 1, 2])):
        body[key] = rng.choice(options[key])
    return "/v1/completions/render", body


def tokenize(rng: random.Random) -> tuple[str, Body]:
    if rng.random() < 0.3:
        return "/detokenize", {
            "tokens": rng.choice(
                [
                    [],
                    [1, 2, 3],
                    [rng.randrange(150_000) for _ in range(8)],
                    [-1],
                    None,
                    ["x"],
                    [10**7],
                ]
            )
        }
    body: Body = {"add_special_tokens": rng.choice([True, False])} if rng.random() < 0.5 else {}
    if rng.random() < 0.3:
        body["return_token_strs"] = rng.choice([True, False, None])
    if rng.random() < 0.5:
        return "/tokenize", {**body, "prompt": rng.choice([text(rng), text(rng), 5, None])}
    body["messages"] = [message(rng) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        body["tools"] = rng.choice([[tool(rng)], [], None])
    if rng.random() < 0.3:
        body |= rng.choice(
            [
                {"add_generation_prompt": False},
                {"continue_final_message": True, "add_generation_prompt": False},
                {"chat_template_kwargs": {"enable_thinking": False}},
            ]
        )
    return "/tokenize", body


def request(seed: str) -> tuple[str, Body]:
    """A path and a body."""
    rng = random.Random(seed)
    return rng.choices([chat, completion, tokenize], [6, 3, 1])[0](rng)


def comparable(status: int, answer: Any) -> Any:
    if status != 200:
        error = answer["error"]
        exact = error["type"] != "Bad Request"
        return {
            "status": status,
            "type": error["type"],
            "param": error["param"] if exact else "*",
            "code": error["code"],
        }
    return json.loads(RANDOM_ID.sub(r"\1*", json.dumps(answer)))
