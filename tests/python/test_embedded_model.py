import json
import subprocess
import sys
from typing import Any

import pytest

from fastrender import model_folder
from fastrender.config import EMBEDDED_MODEL, RenderConfig
from folders import EMBEDDED, ROOT, golden

GOLDEN = golden("embedded_model.json")
CONVERSATIONS = GOLDEN["conversations"]


def test_it_is_what_is_served_when_nobody_names_a_model() -> None:
    folder = model_folder.load(RenderConfig())
    spec = folder.spec
    assert spec.name == EMBEDDED_MODEL
    assert spec.served_names == (EMBEDDED_MODEL,)
    assert spec.special_tokens == GOLDEN["special_tokens"]
    assert spec.max_model_len == 32_768
    assert spec.default_sampling_params == {"temperature": 0.7, "top_k": 20, "top_p": 0.8}
    assert spec.processor_chat_template == spec.chat_templates["default"]
    assert folder.family is not None
    assert folder.family.name == "qwen3_vl"
    assert folder.dtype == "bfloat16"


def test_its_configs_know_the_ids_of_its_tokens() -> None:
    tokenizer = json.loads((EMBEDDED / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    config = model_folder.load(RenderConfig()).config
    named = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    assert {key: config[key] for key in named} == {key: ids[named[key]] for key in named}
    assert config["text_config"]["eos_token_id"] == ids["<|im_end|>"]
    vocabulary = len(tokenizer["model"]["vocab"]) + len(ids)
    assert max(ids.values()) + 1 == vocabulary <= config["text_config"]["vocab_size"]
    decoder = json.loads((EMBEDDED / "tokenizer_config.json").read_text(encoding="utf-8"))
    listed = {
        entry["content"]: int(number) for number, entry in decoder["added_tokens_decoder"].items()
    }
    assert listed == ids


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in EMBEDDED.iterdir()) < 1 << 20


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_its_ids_are_those_of_transformers(name: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(EMBEDDED / "tokenizer.json"))
    case = CONVERSATIONS[name]
    assert tokenizer.encode(case["text"], add_special_tokens=False).ids == case["token_ids"]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_its_template_prints_what_jinja_prints(name: str) -> None:
    native = pytest.importorskip("fastrender._native")
    case = CONVERSATIONS[name]
    source = (EMBEDDED / "chat_template.jinja").read_text(encoding="utf-8")
    template = native.ChatTemplate(source, GOLDEN["special_tokens"])
    assert template.render(case["messages"], **case["options"]) == case["text"]


def test_the_script_makes_the_same_files_again(tmp_path: Any) -> None:
    pytest.importorskip("tokenizers")
    program = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import make_embedded_model as made;"
        "made.OUTPUT = pathlib.Path(sys.argv[2]); made.main()"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "scripts"), str(tmp_path)],
        check=True,
        timeout=50,
        capture_output=True,
    )
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {name: (EMBEDDED / name).read_bytes() for name in made}
    assert "tokenizer.json" in made
