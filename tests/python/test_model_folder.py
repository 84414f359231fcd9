import json
import logging
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastrender import model_folder
from fastrender.config import RenderConfig
from fastrender.model_folder import ModelFolder, ModelFolderError
from folders import EMBEDDED, LLAMA, asset_folders, golden, needs_assets, write_folder

LENGTHS = golden("max_model_len.json")["cases"]
TOKENIZER_FILES = golden("tokenizer_files.json")["cases"]


def load(model: str, **settings: Any) -> ModelFolder:
    return model_folder.load(RenderConfig(model=model, **settings))


def refusal(model: str, **settings: Any) -> str:
    with pytest.raises(ModelFolderError) as caught:
        load(model, **settings)
    return str(caught.value)


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_and_vocabulary_are_those_of_vllm(name: str, tmp_path: pathlib.Path) -> None:
    case = LENGTHS[name]
    folder = write_folder(tmp_path, {"config.json": case["config"]})
    spec = load(
        folder, max_model_len=case.get("given"), hf_overrides=case.get("overrides", {})
    ).spec
    wanted = {key: case[key] for key in ("max_model_len", "vocab_size")}
    assert {"max_model_len": spec.max_model_len, "vocab_size": spec.vocab_size} == wanted


@pytest.mark.parametrize("name", TOKENIZER_FILES)
def test_tokens_and_templates_are_those_of_transformers(name: str, tmp_path: pathlib.Path) -> None:
    case = TOKENIZER_FILES[name]
    spec = load(write_folder(tmp_path, case["files"])).spec
    listed = json.loads((EMBEDDED / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    known = {token["content"] for token in listed}
    added = [token.content for token in spec.tokenizer.added_tokens if token.content not in known]
    assert [list(pair) for pair in spec.special_tokens.items()] == case["special_tokens"]
    assert spec.chat_templates == case["chat_templates"]
    assert added == list(case["added"].values())


def test_the_spec_of_a_folder_is_the_json_that_the_native_half_reads(
    tmp_path: pathlib.Path,
) -> None:
    token = {"content": "<e>", "lstrip": True, "special": True}
    folder = write_folder(
        tmp_path,
        {
            "config.json": {**LLAMA, "max_position_embeddings": 4096, "vocab_size": 4160},
            "generation_config.json": {
                "temperature": 0.5,
                "top_k": None,
                "do_sample": True,
                "eos_token_id": [4108, 3],
            },
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<e>",
                "chat_template": "{{ messages }}",
                "added_tokens_decoder": {"4108": token},
            },
        },
    )
    loaded = load(
        folder,
        served_model_name=("m", "alias"),
        override_generation_config={"top_p": 0.9, "max_new_tokens": 7},
        tokenizer_cache_mb=2,
    )
    assert json.loads(loaded.render_spec({"omit_null": True})) == {
        "model": {
            "name": folder,
            "served_names": ["m", "alias"],
            "max_model_len": 4096,
            "vocab_size": 4160,
            "model_type": "llama",
            "special_tokens": {"eos_token": "<e>"},
            "chat_templates": {"default": "{{ messages }}"},
            "default_sampling_params": {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7},
            "max_tokens_cap": 7,
            "eos_token_ids": [4108, 3],
            "media_placeholders": {},
            "tokenizer": {
                "added_tokens": [
                    {
                        "id": 4108,
                        "content": "<e>",
                        "single_word": False,
                        "lstrip": True,
                        "rstrip": False,
                        "normalized": False,
                        "special": True,
                    }
                ],
                "eos_token": "<e>",
                "skipped_tokens": ["<e>"],
                "cache_bytes": 2 << 20,
            },
        },
        "settings": {"omit_null": True},
    }
    assert loaded.architectures == ("LlamaForCausalLM",)
    assert loaded.family is None
    assert loaded.tokenizer_json == (EMBEDDED / "tokenizer.json").read_bytes()


def test_a_length_beyond_the_model_is_taken_with_a_warning(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_folder(tmp_path, {"config.json": {**LLAMA, "max_position_embeddings": 4096}})
    assert load(folder, max_model_len="32k").spec.max_model_len == 32_000
    assert "--max-model-len 32000 is more than the 4096 tokens" in caplog.text
    caplog.clear()
    assert load(folder, max_model_len=4096).spec.max_model_len == 4096
    assert not caplog.records


def test_a_folder_without_config_gets_the_tokenizers_length(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_folder(tmp_path, {"tokenizer_config.json": {"model_max_length": 8192}})
    spec = load(folder).spec
    assert (spec.max_model_len, spec.vocab_size, spec.model_type) == (8192, None, "")
    assert "has no config.json: 8192 tokens are assumed" in caplog.text
    assert load(folder, max_model_len=100).spec.max_model_len == 100
    write_folder(tmp_path, {"tokenizer_config.json": {"model_max_length": 1e30}})
    assert load(folder).spec.max_model_len == 2048


def test_a_sentence_transformer_has_its_own_length(tmp_path: pathlib.Path) -> None:
    folder = write_folder(
        tmp_path,
        {
            "config.json": {"model_type": "bert", "max_position_embeddings": 512},
            "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        },
    )
    assert load(folder).spec.max_model_len == 256


@pytest.mark.parametrize(
    ("written", "overrides", "source", "params", "cap"),
    [
        # As vLLM 0.33's `get_diff_sampling_param` answers, with transformers 5.19.
        (
            {"temperature": 1.0, "top_k": 50, "min_p": 0.0, "skip_special_tokens": False},
            {},
            "auto",
            {"temperature": 1.0, "top_k": 50, "min_p": 0.0, "skip_special_tokens": False},
            None,
        ),
        ({"max_new_tokens": 100, "max_length": 20}, {}, "auto", {"max_tokens": 100}, None),
        ({"max_new_tokens": 9}, {"max_new_tokens": 5}, "auto", {"max_tokens": 5}, 5),
        ({"temperature": 0.5, "top_k": 5}, {"temperature": None}, "auto", {"top_k": 5}, None),
        ({"temperature": 0.5}, {"top_p": 0.1}, "vllm", {"top_p": 0.1}, None),
        ({"temperature": 0.5, "max_new_tokens": 8}, {}, "folder", {"max_tokens": 3}, 3),
        (None, {}, "auto", {}, None),
    ],
)
def test_sampling_defaults(
    written: dict[str, Any] | None,
    overrides: dict[str, Any],
    source: str,
    params: dict[str, Any],
    cap: int | None,
    tmp_path: pathlib.Path,
) -> None:
    files: dict[str, Any] = {"config.json": {**LLAMA, "top_k": 3}}
    if written is not None:
        files["generation_config.json"] = written
    folder = write_folder(tmp_path / "model", files)
    if source == "folder":
        source = write_folder(tmp_path / "other", {"generation_config.json": {"max_new_tokens": 3}})
    loaded = load(folder, generation_config=source, override_generation_config=overrides)
    assert loaded.spec.default_sampling_params == params
    assert loaded.spec.max_tokens_cap == cap


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({"chat_template.json": {"chat_template": "legacy"}}, None),
        ({"preprocessor_config.json": {}, "chat_template.json": {"chat_template": "a"}}, "a"),
        ({"preprocessor_config.json": {}, "chat_template.jinja": "b"}, "b"),
        (
            {
                "processor_config.json": {"chat_template": "c"},
                "chat_template.jinja": "b",
                "chat_template.json": {"chat_template": "a"},
            },
            "c",
        ),
        (
            {
                "video_preprocessor_config.json": {},
                "chat_template.json": {"chat_template": "a"},
                "additional_chat_templates/tool_use.jinja": "d",
            },
            None,
        ),
        ({"preprocessor_config.json": {}}, None),
    ],
)
def test_a_processors_template(
    files: dict[str, Any], template: str | None, tmp_path: pathlib.Path
) -> None:
    spec = load(write_folder(tmp_path, {"config.json": LLAMA, **files})).spec
    assert spec.processor_chat_template == template


@pytest.mark.parametrize(
    ("written", "prepend"),
    [
        ({}, "first"),
        ({"legacy": None}, "first"),
        ({"legacy": True}, "always"),
        ({"legacy": True, "add_prefix_space": False}, "never"),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, None),
    ],
)
def test_llama_tokenizers_put_a_space_in_front(
    written: dict[str, Any], prepend: str | None, tmp_path: pathlib.Path
) -> None:
    tokenizer = {"tokenizer_class": "LlamaTokenizer", **written}
    folder = write_folder(tmp_path, {"config.json": LLAMA, "tokenizer_config.json": tokenizer})
    assert load(folder).spec.tokenizer.llama_prepend == prepend


def test_older_folders_list_added_tokens_in_a_file_of_their_own(tmp_path: pathlib.Path) -> None:
    folder = write_folder(
        tmp_path,
        {
            "config.json": LLAMA,
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
            "special_tokens_map.json": {"eos_token": "<e>"},
            "added_tokens.json": {"<w>": 4110, "<e>": 4109},
        },
    )
    tokens = load(folder).spec.tokenizer.added_tokens
    assert [(token.id, token.content, token.special, token.normalized) for token in tokens] == [
        (4109, "<e>", True, False),
        (4110, "<w>", False, True),
    ]


def test_a_tokenizer_of_another_folder(tmp_path: pathlib.Path) -> None:
    model = write_folder(tmp_path / "model", {"config.json": LLAMA}, tokenizer=False)
    other = write_folder(tmp_path / "other", {"chat_template.jinja": "other"})
    loaded = load(model, tokenizer=other)
    assert loaded.spec.name == model
    assert loaded.spec.chat_templates == {"default": "other"}
    assert loaded.tokenizer_path == tmp_path / "other" / "tokenizer.json"


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "torch.float16"}, "float16"),
        ({"torch_dtype": "float32"}, "bfloat16"),
        ({"text_config": {"dtype": "float16"}}, "float16"),
        ({"vision_config": {"torch_dtype": "float16"}}, "float16"),
        ({"model_type": "gemma2", "torch_dtype": "float16"}, "bfloat16"),
    ],
)
def test_the_number_type(config: dict[str, Any], dtype: str, tmp_path: pathlib.Path) -> None:
    assert load(write_folder(tmp_path, {"config.json": {**LLAMA, **config}})).dtype == dtype


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.json": '{"a": ' + "1" * 5_000 + "}"}, ["config.json", "too many digits"]),
        (
            {"config.json": LLAMA, "generation_config.json": '{"top_k": ' + "1" * 5_000 + "}"},
            ["generation_config.json", "too many digits"],
        ),
        (
            {"config.json": LLAMA, "generation_config.json": {"max_new_tokens": 10**30}},
            ["generation_config.json", "`max_new_tokens`", "at most"],
        ),
        (
            {"config.json": {**LLAMA, "max_position_embeddings": 10**400}},
            ["config.json", "`max_position_embeddings`", "a finite number"],
        ),
        (
            {
                "config.json": {
                    **LLAMA,
                    "max_position_embeddings": 10**299,
                    "rope_scaling": {"type": "linear", "factor": 10**299},
                }
            },
            ["1 to 4294967295", "`inf`"],
        ),
        ({"config.json": "{"}, ["config.json", "is not JSON", "line 1, column 2"]),
        ({"config.json": "[]"}, ["config.json", "a JSON object", "`[]`"]),
        ({"config.json": "[" * 100_000}, ["config.json", "nested too deeply"]),
        ({"config.json": {"architectures": "L"}}, ["config.json", "`architectures`", '`"L"`']),
        ({"config.json": {"model_type": 5}}, ["config.json", "`model_type`", "a string", "`5`"]),
        (
            {"config.json": {"max_position_embeddings": "x"}},
            ["config.json", "`max_position_embeddings`", "a number"],
        ),
        ({"config.json": {"max_position_embeddings": 0}}, ["1 to 4294967295", "`0`"]),
        ({"config.json": {"max_position_embeddings": float("inf")}}, ["a finite number"]),
        ({"config.json": {"vocab_size": -1}}, ["`vocab_size`"]),
        ({"config.json": {"rope_scaling": 3}}, ["`rope_scaling`", "an object"]),
        ({"config.json": {"rope_scaling": {"factor": "a"}}}, ["`factor`", "a number"]),
        (
            {"config.json": LLAMA, "generation_config.json": {"top_k": "a"}},
            ["generation_config.json", "`top_k`"],
        ),
        (
            {"config.json": LLAMA, "generation_config.json": {"max_new_tokens": 0}},
            ["generation_config.json", "`max_new_tokens`", "from 1"],
        ),
        (
            {"config.json": LLAMA, "tokenizer_config.json": {"eos_token": 5}},
            ["tokenizer_config.json", "`eos_token`", "a token"],
        ),
        (
            {"config.json": LLAMA, "tokenizer_config.json": {"chat_template": [{"name": "a"}]}},
            ["tokenizer_config.json", "`chat_template`"],
        ),
        (
            {"config.json": LLAMA, "tokenizer_config.json": {"added_tokens_decoder": {"a": {}}}},
            ["tokenizer_config.json", "`a`", "added_tokens_decoder"],
        ),
        (
            {"config.json": LLAMA, "tokenizer_config.json": {"extra_special_tokens": 5}},
            ["tokenizer_config.json", "`extra_special_tokens`", "a list"],
        ),
        ({"config.json": LLAMA, "added_tokens.json": {"a": -1}}, ["added_tokens.json", "`a`"]),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(
    files: dict[str, Any], words: list[str], tmp_path: pathlib.Path
) -> None:
    message = refusal(write_folder(tmp_path, files))
    assert [word for word in words if word not in message] == []
    assert "\n" not in message


def test_a_file_that_is_not_utf8(tmp_path: pathlib.Path) -> None:
    folder = write_folder(tmp_path, {"config.json": LLAMA})
    (tmp_path / "chat_template.jinja").write_bytes(b"ab\xff")
    assert refusal(folder) == f"chat_template.jinja of `{folder}` is not UTF-8 (byte 2)"


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("folder", "is a directory"),
        ("loop", "too many levels of symbolic links"),
        ("pipe", "it is no regular file"),
    ],
)
def test_what_is_no_file_is_named(
    name: str, kind: str, message: str, tmp_path: pathlib.Path
) -> None:
    folder = write_folder(tmp_path, {"config.json": LLAMA})
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(name)
    else:
        os.mkfifo(path)
    with pytest.raises(ModelFolderError) as refused:
        assert load(folder).tokenizer_json
    where = f"`{path}`" if name == "tokenizer.json" else f"{name} of `{folder}`"
    assert str(refused.value) == f"cannot read {where}: {message}"


def test_a_lone_surrogate_in_a_folder_is_named(tmp_path: pathlib.Path) -> None:
    for tokenizer, part in (
        ({"chat_template": "\ud800"}, "chat templates"),
        ({"eos_token": "\ud800"}, "special tokens"),
    ):
        folder = write_folder(tmp_path, {"config.json": LLAMA, "tokenizer_config.json": tokenizer})
        with pytest.raises(ModelFolderError) as refused:
            load(folder).render_spec({})
        text = f"the {part} of `{folder}` holds a lone surrogate, which no text can"
        assert str(refused.value) == text


def test_json_files_may_begin_with_a_mark(tmp_path: pathlib.Path) -> None:
    folder = write_folder(tmp_path, {"config.json": LLAMA, "tokenizer_config.json": {}})
    plain = load(folder).spec
    for path in tmp_path.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    marked = load(folder)
    assert marked.spec == plain
    assert marked.tokenizer_json.startswith(b"{")


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"\xff\xfe{\0}\0", "is UTF-16; save it as UTF-8")]
)
def test_a_tokenizer_that_is_empty_or_utf16_is_named(
    content: bytes, message: str, tmp_path: pathlib.Path
) -> None:
    folder = write_folder(tmp_path, {"config.json": LLAMA})
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelFolderError, match=f"^`{path}` {message}$"):
        assert load(folder).tokenizer_json


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"temperature": "hot"}, '`temperature` must be a number, not `"hot"`'),
        ({"temperature": -1}, "`temperature` must be a number from 0 to 2, not `-1`"),
        ({"top_p": 7}, "`top_p` must be a number above 0 and at most 1, not `7`"),
        ({"top_k": -5}, "`top_k` must be -1 or a whole number from 0, not `-5`"),
        ({"top_k": 10**30}, "`top_k` must be a whole number of at most"),
        ({"max_new_tokens": 1e5}, "`max_new_tokens` must be a whole number"),
    ],
)
def test_overrides_that_no_request_could_use_are_refused(
    override: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    folder = write_folder(tmp_path, {"config.json": LLAMA})
    refused = refusal(folder, override_generation_config=override)
    assert refused.startswith(f"--override-generation-config: {message}")
    # A folder's own values stand, as in vLLM.
    write_folder(tmp_path, {"generation_config.json": {"temperature": 3}})
    assert load(folder).spec.default_sampling_params == {"temperature": 3}


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ([], "has no tokenizer.json, which fastrender needs"),
        (["tokenizer.model"], "has a SentencePiece tokenizer (`tokenizer.model`)"),
        (["instruct.model.v3"], "has a SentencePiece tokenizer (`instruct.model.v3`)"),
        (["tekken.json"], "has a tiktoken tokenizer (`tekken.json`)"),
        (["qwen.tiktoken"], "has a tiktoken tokenizer (`qwen.tiktoken`)"),
        (["tiktoken.model"], "has a tiktoken tokenizer (`tiktoken.model`)"),
        (["vocab.json", "merges.txt"], "has a vocabulary without tokenizer.json (`vocab.json`"),
    ],
)
def test_other_tokenizers_are_refused(names: list[str], kind: str, tmp_path: pathlib.Path) -> None:
    files = {"config.json": LLAMA, **dict.fromkeys(names, "")}
    message = refusal(write_folder(tmp_path, files, tokenizer=False))
    assert kind in message
    assert "no tokenizer.json" in message or "without tokenizer.json" in message


def test_tokenizer_modes(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_folder(tmp_path, {"config.json": LLAMA, "tekken.json": "{}"})
    assert load(folder, tokenizer_mode="hf").spec.model_type == "llama"
    assert not [record for record in caplog.records if "Mistral" in record.message]
    load(folder)
    assert "has a Mistral tokenizer too" in caplog.text
    assert "tokenizer mode `mistral` is not supported" in refusal(folder, tokenizer_mode="mistral")


@pytest.mark.parametrize("name", ["/no/such", "a/b/c", "what is it", "a\0b", "a" * 97, "b" * 999])
def test_what_is_neither_a_folder_nor_a_hub_id(name: str) -> None:
    assert refusal(name) == f"`{name}` is neither a folder nor a hub id"


def test_a_file_is_no_model_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / "model.gguf").write_text("")
    assert "is a file" in refusal(str(tmp_path / "model.gguf"))


WORDS = st.text(alphabet="ab0<>é\ud800\0", max_size=4) | st.sampled_from(
    ["content", "name", "llama"]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
CONFIG_KEYS = [
    "model_type",
    "architectures",
    "max_position_embeddings",
    "rope_scaling",
    "text_config",
    "vocab_size",
    "dtype",
]
TOKENIZER_KEYS = [
    "eos_token",
    "chat_template",
    "added_tokens_decoder",
    "extra_special_tokens",
    "additional_special_tokens",
    "model_max_length",
    "tokenizer_class",
    "image_token",
]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    config=st.dictionaries(st.sampled_from(CONFIG_KEYS), JSON_VALUES),
    tokenizer=st.dictionaries(st.sampled_from(TOKENIZER_KEYS), JSON_VALUES),
)
def test_odd_files_give_a_spec_or_a_sentence(
    config: dict[str, Any], tokenizer: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_folder(
        tmp_path_factory.mktemp("odd"),
        {"config.json": {**LLAMA, **config}, "tokenizer_config.json": tokenizer},
    )
    logging.disable(logging.WARNING)
    try:
        outcome = load(folder).render_spec({}).decode()
    except ModelFolderError as error:
        outcome = json.dumps(str(error))
    finally:
        logging.disable(logging.NOTSET)
    assert "\n" not in outcome


def test_importing_it_is_light() -> None:
    heavy = ["huggingface_hub", "httpx", "torch", "transformers", "tokenizers", "numpy", "PIL"]
    program = (
        "import sys; from fastrender import config, model_folder;"
        f"model_folder.load(config.RenderConfig()); print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"


def test_real_folders_load_or_say_what_they_lack() -> None:
    needs_assets()
    outcomes = {}
    for path in asset_folders():
        try:
            outcomes[path.name] = load(str(path)).spec.max_model_len > 0
        except ModelFolderError as error:
            outcomes[path.name] = "no tokenizer.json" not in str(error)
    wanted = {path.name: (path / "tokenizer.json").exists() for path in asset_folders()}
    assert outcomes == wanted


def test_a_large_folder_loads_quickly() -> None:
    needs_assets()
    folder = next(path for path in asset_folders() if path.name == "qwen3")
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        load(str(folder))
        taken.append(time.perf_counter() - started)
    assert min(taken) < 0.05
