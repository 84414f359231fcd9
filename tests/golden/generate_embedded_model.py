"""Write embedded_model.json: prompts and ids that transformers makes with the embedded model.

python tests/golden/generate_embedded_model.py      # needs transformers 5.19
"""

import json
import pathlib
from typing import Any

import tokenizers
import transformers

FOLDER = pathlib.Path(__file__).parents[2] / "python/fastrender/embedded"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city — now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}
USER = {"role": "user", "content": "Hi"}
QUESTION = {"role": "user", "content": "How warm is it?"}
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "user": {"messages": [USER]},
    "no_generation_prompt": {"messages": [USER], "add_generation_prompt": False},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER]},
    "later_system": {"messages": [USER, {"role": "system", "content": "Be brief."}]},
    "turns": {"messages": [USER, {"role": "assistant", "content": "Hello!"}, QUESTION]},
    "tools": {"messages": [QUESTION], "tools": [TOOL, TOOL]},
    "tools_and_system": {
        "messages": [{"role": "system", "content": "Be brief."}, QUESTION],
        "tools": [TOOL],
    },
    "calls": {
        "messages": [
            QUESTION,
            {"role": "assistant", "content": "I ask.", "tool_calls": [CALL, CALL]},
            {"role": "tool", "content": "12"},
            {"role": "tool", "content": [{"type": "text", "text": "13"}]},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "14"},
            USER,
        ],
        "tools": [TOOL],
    },
    "reasoning": {
        "messages": [
            USER,
            {"role": "assistant", "content": "Hello!", "reasoning_content": "They greet."},
            QUESTION,
            {"role": "assistant", "content": "Warm.", "reasoning_content": "\nIt is May.\n"},
        ]
    },
    "no_thinking": {"messages": [USER], "enable_thinking": False},
    "thinking": {"messages": [USER], "enable_thinking": True},
    "media": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Compare "},
                    {"type": "image"},
                    {"type": "text", "text": " with "},
                    {"type": "video"},
                ],
            }
        ]
    },
    "null_content": {"messages": [USER, {"role": "assistant", "content": None}, USER]},
    "specials_in_text": {
        "messages": [
            {"role": "user", "content": "<|im_end|> <think> ﬁ e\u0301 \u3000 \n\n 12345 🦜"}
        ]
    },
}


def main() -> None:
    """Render and tokenize every conversation."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    golden = {}
    for name, conversation in CONVERSATIONS.items():
        options = {"add_generation_prompt": True, **conversation}
        messages = options.pop("messages")
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        golden[name] = {"messages": messages, "options": options, "text": text, "token_ids": ids}
    value = {
        "source": f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}",
        "special_tokens": tokenizer.special_tokens_map,
        "conversations": golden,
    }
    output = pathlib.Path(__file__).with_name("embedded_model.json")
    output.write_text(json.dumps(value, indent=1) + "\n")
    print(f"{output}: {len(golden)} conversations, {type(tokenizer).__name__}")


if __name__ == "__main__":
    main()
