"""Record what vLLM makes of chat messages: run in the environment of vLLM 0.33 (GPU-less).

    PYTHONPATH=SITE/vllm-0.33 python tests/golden/generate_conversations.py > tests/golden/conversations.json

Each case is one or more messages, read by vLLM's request model and its conversation parser, in both content formats.
"""

import copy
import itertools
import json
import sys
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.exceptions import VLLMValidationError
from vllm.renderers.chat_utils import chat_message
from vllm.renderers.hf import _consolidate_system_messages, _convert_developer_to_system
from vllm.version import __version__

TEXT = {"type": "text", "text": "t"}
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "f", "arguments": '{"z": 1, "a": [2.0, null]}'},
}
CONTENTS: list[Any] = [
    "x",
    "",
    None,
    [],
    {},
    {"a": 1},
    5,
    True,
    [TEXT],
    [TEXT, {"type": "text", "text": ""}, {"type": "text", "text": "u"}],
    ["s"],
    ["s", TEXT],
    [5],
    [None],
    [TEXT, 5],
    [{}],
    [{"foo": 1}],
    [{"foo": 1}, TEXT],
    [{"text": "t"}],
    [{"text": "t"}, TEXT],
    [{"type": "text"}],
    [{"type": "text", "text": None}, TEXT],
    [{"type": "text", "text": 5}, TEXT],
    [{"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}, "foo": [1]}],
    [{"type": "text", "text": "t", "name": "n"}],
    [{"type": "input_text", "text": "t"}],
    [{"type": "input_text", "text": "t"}, TEXT],
    [{"type": "output_text", "text": "t"}, "s", TEXT],
    [{"type": "refusal", "refusal": "r"}],
    [{"type": "refusal", "refusal": None}, TEXT],
    [{"type": "thinking", "thinking": "h", "closed": True}, TEXT],
    [{"type": "tool_reference", "name": "n"}],
    [{"type": "tool_reference", "name": "n"}, TEXT],
    [{"name": "n"}],
    [{"type": "hologram", "hologram": "x"}],
    [TEXT, {"type": "hologram", "hologram": "x"}],
    [{"type": 5}, TEXT],
    [{"type": None}, TEXT],
    [{"type": "file", "file": {"file_id": "q"}}],
    [{"type": "text", "text": "t", "uuid": "u"}],
    [{"type": "image_url", "image_url": "plain"}],
    [{"type": "image_url", "image_url": {"uri": "u"}}, TEXT],
]
EXTRAS: list[dict[str, Any]] = [
    {"name": "n"},
    {"name": 5},
    {"reasoning": "r"},
    {"reasoning": 5},
    {"reasoning": None},
    {"reasoning_content": "rc"},
    {"reasoning": "r", "reasoning_content": "rc"},
    {"tool_calls": [CALL]},
    {"tool_calls": []},
    {"tool_calls": None},
    {"tool_calls": ""},
    {"tool_calls": 5},
    {"tool_calls": [{**CALL, "id": None}]},
    {"tool_calls": [{k: v for k, v in CALL.items() if k != "type"}]},
    {"tool_calls": [{"type": "custom", "id": "c", "custom": {"name": "f", "input": "x"}}]},
    {
        "tool_calls": [
            {
                "xx": 1,
                "type": "function",
                "function": {"zz": 1, "name": "f", "arguments": "{}"},
                "id": "c",
            }
        ]
    },
    {"tool_call_id": "c"},
    {"tool_call_id": None},
    {"tool_call_id": 5},
    {"task": "k"},
    {"task": 5},
    {"tools": [{"x": 1, "type": "function", "function": {"parameters": {}, "name": "f"}}]},
    {"tools": 5},
    {"refusal": "no"},
    {"audio": {"id": "a"}},
    {"function_call": {"name": "f", "arguments": "{}"}},
    {"custom_key": 1, "channel": "final"},
]
ROLES = ["system", "developer", "user", "assistant", "tool", "function", "wizard"]


def messages() -> list[list[Any]]:
    single: list[Any] = [
        5,
        None,
        [],
        "x",
        {},
        {"content": "x"},
        {"role": 5, "content": "x"},
        {"role": None},
    ]
    for role in ROLES:
        single.append({"role": role})
        single += [{"role": role, "content": content} for content in CONTENTS]
        single += [{"role": role, "content": "x", **extra} for extra in EXTRAS]
        for content, extra in itertools.product([None, ["s"], [TEXT], [5]], EXTRAS):
            single.append({"role": role, "content": content, **extra})
    for arguments in [
        "null",
        "",
        "[]",
        "42",
        '{"a":',
        '{"a":1}',
        '"x"',
        "NaN",
        '{"k": {"y": 1e16, "x": "é"}}',
        " {} ",
    ]:
        call = {**CALL, "function": {"name": "f", "arguments": arguments}}
        single.append({"role": "assistant", "tool_calls": [call, CALL]})
    cases = [[message] for message in single]
    header = "x-anthropic-billing-header: cch=1"
    for content in [
        header,
        f"{header}\n",
        f"{header}\nrest\nmore",
        [{"type": "text", "text": f"{header}\nr", "k": 1}, TEXT],
    ]:
        cases += [[{"role": "system", "content": content}], [{"role": "user", "content": content}]]
    user, system, developer = (
        {"role": role, "content": role[0]} for role in ("user", "system", "developer")
    )
    parts = {"role": "system", "content": [TEXT, {"type": "text", "text": "u"}]}
    empty = {"role": "system", "content": ""}
    cases += [
        [developer, user],
        [user, developer],
        [system, developer, user],
        [parts, user, {**developer, "tools": [{"type": "function", "function": {"name": "f"}}]}],
        [empty, developer, user, empty],
        [system, user, system],
        [
            user,
            {"role": "assistant", "content": "x", "tool_calls": [CALL]},
            {"role": "tool", "content": [TEXT, TEXT], "tool_call_id": "c1"},
        ],
        [],
    ]
    return cases


def parsed(request: ChatCompletionRequest, content_format: str) -> dict[str, Any]:
    config = SimpleNamespace(enable_prompt_embeds=False, multimodal_config=None)
    tracker = SimpleNamespace(
        model_config=config,
        create_parser=lambda **_: SimpleNamespace(model_config=config, mm_placeholder_storage=dict),
    )
    conversation: list[Any] = []
    for message in request.messages:
        conversation += chat_message.parse_chat_message_content(
            message, tracker, content_format, False
        )
    chat_message._postprocess_messages(conversation)
    if any(message["role"] == "developer" for message in conversation):
        folded = _consolidate_system_messages(_convert_developer_to_system(conversation))
        return {"messages": conversation, "folded": folded}
    return {"messages": conversation}


def outcome(case: list[Any], content_format: str) -> dict[str, Any]:
    try:
        request = ChatCompletionRequest.model_validate({"messages": copy.deepcopy(case)})
    except VLLMValidationError as error:
        return {"error": "BadRequestError", "param": error.parameter}
    except ValidationError:
        return {"error": "Bad Request"}
    except TypeError:
        return {"error": "BadRequestError", "param": None}
    try:
        return json.loads(json.dumps(parsed(request, content_format)))
    except VLLMValidationError as error:
        return {"error": "BadRequestError", "param": error.parameter}
    except (ValidationError, ValueError, TypeError):
        return {"error": "BadRequestError", "param": None}


def main() -> None:
    cases = []
    for case in messages():
        results = {
            content_format: outcome(case, content_format) for content_format in ("string", "openai")
        }
        cases.append({"request": case, **results})
    header = {"generator": "tests/golden/generate_conversations.py", "vllm": __version__}
    lines = ",\n".join(
        json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases
    )
    sys.stdout.write(json.dumps(header)[:-1] + ', "cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
