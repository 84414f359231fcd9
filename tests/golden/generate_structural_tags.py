"""Write structural_tags.json: what vLLM 0.33 sends an engine to hold a model to its tools.

    PYTHONPATH=REF/site-0.33 REF/venv/bin/python generate_structural_tags.py > structural_tags.json

REF is the reference's environment.
"""

# ruff: noqa: RUF001, RUF012

import json
import logging
import sys

logging.disable(logging.CRITICAL)
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: E402
from vllm.parser import ParserManager  # noqa: E402

FORMATS = [
    *("hermes", "longcat", "llama3_json", "kimi_k2", "deepseek_v3", "deepseek_v31", "deepseek_v32"),
    *(
        "deepseek_v4",
        "deepseek_v41",
        "qwen3_coder",
        "step3p5",
        "step5",
        "mimo",
        "minimax_m2",
        "glm45",
    ),
    *(
        "ling3",
        "openai",
        "granite",
        "granite4",
        "seed_oss",
        "pythonic",
        "xlam",
        "gemma4",
        "mistral",
    ),
]
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "days": {"type": ["integer", "null"]},
        "note": {"type": ["string", "null"]},
        "any": {},
        "opts": {"type": "object"},
    },
    "required": ["city"],
}
DEFS = {
    "type": "object",
    "properties": {"p": {"$ref": "#/$defs/P"}},
    "$defs": {"P": {"type": "number"}},
}


def tool(name, parameters=None, strict=None):
    function = {"name": name}
    if parameters is not None:
        function["parameters"] = parameters
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


NAMED = {"type": "function", "function": {"name": "now"}}
REQUESTS = [
    {"tools": [tool("weather", WEATHER), tool("now")]},
    {
        "tools": [
            tool("weather", WEATHER, True),
            tool("now", {"type": "object", "properties": {}}, False),
        ]
    },
    {"tools": [tool("weather", WEATHER, True)]},
    {"tools": [tool("weather", WEATHER, True)], "tool_choice": "required"},
    {"tools": [tool("weather", WEATHER), tool("now", DEFS)], "tool_choice": "required"},
    {"tools": [tool("weather", WEATHER), tool("now")], "tool_choice": NAMED},
    {"tools": [tool("weather", WEATHER), tool("now", DEFS, True)], "tool_choice": NAMED},
    {"tools": [tool("weather", WEATHER), tool("now")], "parallel_tool_calls": False},
    {
        "tools": [tool('é"x', WEATHER), tool("now")],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    },
    {"tools": [tool("weather", WEATHER)], "tool_choice": "none"},
    {"tools": [tool("weather", WEATHER, True)], "response_format": {"type": "json_object"}},
    {
        "tools": [tool("weather", WEATHER)],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": WEATHER}},
        "tool_choice": "required",
    },
    {"tools": [tool("weather", WEATHER, True)], "structured_outputs": {"choice": ["yes", "no"]}},
]


class Tokenizer:
    """Just enough of one: every marker that a parser insists on is a token."""

    all_special_tokens = ()
    all_special_ids = ()
    init_kwargs = {}
    chat_template = None
    markers = (
        *("<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "[TOOL_CALLS]"),
        *(
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>",
        ),
        *(
            "<｜tool▁sep｜>",
            "<|tool_call|>",
            "<seed:tool_call>",
            "<longcat_tool_call>",
            "</longcat_tool_call>",
        ),
    )

    def get_vocab(self):
        return {marker: 1000 + i for i, marker in enumerate(self.markers)}

    def convert_tokens_to_ids(self, tokens):
        vocabulary = self.get_vocab()
        return (
            vocabulary.get(tokens)
            if isinstance(tokens, str)
            else [vocabulary.get(t) for t in tokens]
        )


def adjusted(name, fields, level):
    tokenizer = Tokenizer()
    parser_class = ParserManager.get_parser(
        tool_parser_name=name,
        reasoning_parser_name=None,
        enable_auto_tools=True,
        model_name="m",
        tokenizer=tokenizer,
        is_harmony=name == "openai",
        tool_strict_level=level,
    )
    request = ChatCompletionRequest(
        model="m", messages=[{"role": "user", "content": "x"}], **fields
    )
    if request.tool_choice == "none":
        return {}
    parser = parser_class(tokenizer, request.tools, chat_template_kwargs={}, model_config=None)
    request = parser.adjust_request(request)
    outputs = request.structured_outputs
    return {
        "skip_special_tokens": request.skip_special_tokens,
        "structural_tag": outputs.structural_tag if outputs else None,
        "json": outputs.json if outputs else None,
    }


def main():
    cases = []
    for name in FORMATS:
        for number, fields in enumerate(REQUESTS):
            if name == "openai" and ("response_format" in fields or "structured_outputs" in fields):
                continue
            for level in (None, "function", "parameter") if number in (0, 4) else (None,):
                want = adjusted(name, json.loads(json.dumps(fields)), level)
                cases.append({"format": name, "request": number, "level": level, "want": want})
    json.dump(
        {
            "generator": "generate_structural_tags.py",
            "vllm": "0.33.0",
            "requests": REQUESTS,
            "cases": cases,
        },
        sys.stdout,
        ensure_ascii=False,
        indent=None,
        separators=(",", ":"),
    )
    print()


if __name__ == "__main__":
    main()
