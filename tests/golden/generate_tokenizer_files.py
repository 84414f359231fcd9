"""Write tokenizer_files.json: special tokens and templates that transformers finds in folders.

    python tests/golden/generate_tokenizer_files.py      # needs transformers 5.19

Every folder has the embedded model's tokenizer.json beside the files of its case. `added` lists the
tokens that the tokenizer then has beyond it, by id.
"""

import json
import pathlib
import shutil
import tempfile
from typing import Any

import transformers
from tokenizers import Tokenizer

TOKENIZER = pathlib.Path(__file__).parents[2] / "python/fastrender/embedded/tokenizer.json"
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
QWEN = {"model_type": "qwen3"}
END = {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": True, "special": True}
ENTRY = {"content": "<|im_end|>", "lstrip": False, "rstrip": True, "special": True}
CASES: dict[str, dict[str, Any]] = {
    "nothing_but_a_config": {"config.json": QWEN},
    "class_of_the_config": {"config.json": QWEN, "tokenizer_config.json": {}},
    "nulls": {
        "config.json": QWEN,
        "tokenizer_config.json": {"unk_token": None, "pad_token": None, "eos_token": "<|im_end|>"},
    },
    "generic": {
        "config.json": QWEN,
        "tokenizer_config.json": {**GENERIC, "eos_token": "<|im_end|>", "bos_token": "<think>"},
    },
    "order": {
        "config.json": QWEN,
        "tokenizer_config.json": {
            **GENERIC,
            "mask_token": "<m>",
            "eos_token": "<e>",
            "unk_token": "<u>",
            "bos_token": "<b>",
        },
    },
    "objects": {"config.json": QWEN, "tokenizer_config.json": {**GENERIC, "eos_token": END}},
    "other_class": {
        "config.json": {"model_type": "qwen3"},
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"},
    },
    "distrusted_class": {
        "config.json": {"model_type": "qwen2"},
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizerFast"},
    },
    "generic_model": {
        "config.json": {"model_type": "phi3"},
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "eos_token": "<|im_end|>"},
    },
    "unknown_class": {
        "config.json": {"model_type": "llama"},
        "tokenizer_config.json": {"tokenizer_class": "SomebodysTokenizer", "eos_token": "a"},
    },
    "class_in_config": {"config.json": {"model_type": "llama", "tokenizer_class": "GPT2Tokenizer"}},
    "map_over_config": {
        "config.json": QWEN,
        "tokenizer_config.json": {**GENERIC, "eos_token": "<a>", "pad_token": "<p>"},
        "special_tokens_map.json": {"eos_token": "<b>", "unk_token": {"content": "<u>"}},
    },
    "map_beside_decoder": {
        "config.json": QWEN,
        "tokenizer_config.json": {
            **GENERIC,
            "eos_token": "<a>",
            "added_tokens_decoder": {"4098": ENTRY},
        },
        "special_tokens_map.json": {"eos_token": "<b>", "unk_token": "<u>"},
    },
    "own_names": {
        "config.json": QWEN,
        "tokenizer_config.json": {
            **GENERIC,
            "image_token": "<|image_pad|>",
            "end_token": END,
            "extra_special_tokens": {"boi_token": "<boi>", "eoi_token": "<eoi>"},
        },
    },
    "extra_list": {
        "config.json": QWEN,
        "tokenizer_config.json": {**GENERIC, "extra_special_tokens": ["<x>", "<|im_end|>", "<y>"]},
    },
    "additional_list": {
        "config.json": QWEN,
        "tokenizer_config.json": {**GENERIC, "additional_special_tokens": ["<x>", END]},
    },
    "additional_in_map": {
        "config.json": QWEN,
        "tokenizer_config.json": GENERIC,
        "special_tokens_map.json": {"additional_special_tokens": ["<x>", "<y>"]},
    },
    "decoder_beyond": {
        "config.json": QWEN,
        "tokenizer_config.json": {
            **GENERIC,
            "added_tokens_decoder": {
                "4098": ENTRY,
                "4109": {"content": "<new>", "special": False},
                "4110": {"content": "<newer>", "special": True},
            },
        },
    },
    "template_string": {
        "config.json": QWEN,
        "tokenizer_config.json": {**GENERIC, "chat_template": "one"},
    },
    "template_list": {
        "config.json": QWEN,
        "tokenizer_config.json": {
            **GENERIC,
            "chat_template": [
                {"name": "default", "template": "one"},
                {"name": "tool_use", "template": "two"},
            ],
        },
    },
    "template_file": {
        "config.json": QWEN,
        "tokenizer_config.json": {**GENERIC, "chat_template": "one"},
        "chat_template.jinja": "from a file\r\nof two lines\n",
    },
    "template_folder": {
        "config.json": QWEN,
        "tokenizer_config.json": {**GENERIC, "chat_template": "one"},
        "chat_template.jinja": "default",
        "additional_chat_templates/tool_use.jinja": "tools",
        "additional_chat_templates/rag.jinja": "documents",
    },
    "template_json_is_not_the_tokenizers": {
        "config.json": QWEN,
        "tokenizer_config.json": GENERIC,
        "chat_template.json": {"chat_template": "legacy"},
    },
}


def reference(folder: pathlib.Path) -> dict[str, Any]:
    """What transformers' tokenizer of a folder says."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    templates = tokenizer.chat_template
    if not isinstance(templates, dict):
        templates = {} if templates is None else {"default": templates}
    known = Tokenizer.from_file(str(TOKENIZER)).get_added_tokens_decoder()
    now = tokenizer.added_tokens_decoder
    return {
        "special_tokens": list(tokenizer.special_tokens_map.items()),
        "chat_templates": templates,
        "added": {key: now[key].content for key in sorted(now) if key not in known},
    }


def main() -> None:
    """Make every folder and write what transformers finds."""
    golden = {}
    for name, files in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            shutil.copy(TOKENIZER, root)
            for file, content in files.items():
                (root / file).parent.mkdir(exist_ok=True)
                text = content if isinstance(content, str) else json.dumps(content)
                (root / file).write_bytes(text.encode())
            try:
                golden[name] = {"files": files, **reference(root)}
            except Exception as error:
                print(f"{name}: the reference refuses it: {error!r:.300}")
    value = {"source": f"transformers {transformers.__version__}", "cases": golden}
    output = pathlib.Path(__file__).with_name("tokenizer_files.json")
    output.write_text(json.dumps(value, indent=1) + "\n")
    print(f"{output}: {len(golden)} folders")


if __name__ == "__main__":
    main()
