import json
import pathlib
from typing import Any

import pytest

from fastrender.arguments import CommandLine, parse
from fastrender.config import RenderConfig
from fastrender.settings import ConfigError


def read(*words: str, **environment: str) -> CommandLine:
    return parse(words, environment, command="serve")


def given(*words: str, **environment: str) -> dict[str, Any]:
    """The settings that differ from the defaults."""
    config, default = read(*words, **environment).config, RenderConfig()
    names = RenderConfig.__slots__
    return {n: getattr(config, n) for n in names if getattr(config, n) != getattr(default, n)}


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ([], {}),
        (["folder"], {"model": "folder"}),
        (["--model", "a"], {"model": "a"}),
        (["--model", "a", "b"], {"model": "b"}),
        (["b", "--model=a"], {"model": "b"}),
        (["--port", "9"], {"port": 9}),
        (["--port=9"], {"port": 9}),
        (["--max_model_len", "32k"], {"max_model_len": 32_000}),
        (["--max-model-len=25.6k"], {"max_model_len": 25_600}),
        (["--max-model-len", "-1"], {}),
        (["--served-model-name", "a", "b", "--port", "1"], {"served_model_name": ("a", "b")}),
        (["--served_model_name=a"], {"served_model_name": ("a",)}),
        (["--api-key", "a", "b"], {"api_key": ("a", "b")}),
        (["--api-key=-x"], {"api_key": ("-x",)}),
        (["--omit-null"], {"omit_null": True}),
        (["--omit_null=true"], {"omit_null": True}),
        (["--omit-null", "--no-omit-null"], {}),
        (["--omit-null", "--omit-null=false"], {}),
        (["--disable-fastapi-docs"], {"enable_fastapi_docs": False}),
        (["--no-enable-fastapi-docs"], {"enable_fastapi_docs": False}),
        (["--disable-fastapi-docs=false"], {}),
        (["--enable-uvicorn-access-log"], {"enable_uvicorn_access_log": True}),
        (["--disable-uvicorn-access-log"], {}),
        (["--allowed-origins", '["*"]'], {"allowed_origins": ("*",)}),
        (["--hf-overrides", '{"a": 1}'], {"hf_overrides": {"a": 1}}),
        (["--middleware", "a.b", "--middleware=c"], {"middleware": ("a.b", "c")}),
        (["--chat-template", "{{ '--x' }}"], {"chat_template": "{{ '--x' }}"}),
        (["--shutdown-timeout", "1.5"], {"shutdown_timeout": 1.5}),
        (["--root-path", "x/"], {"root_path": "/x"}),
    ],
)
def test_flags(words: list[str], settings: dict[str, Any]) -> None:
    settings = dict(settings)
    actual = given(*words)
    if "--port" in words and "port" not in settings:
        actual.pop("port")
    assert actual == settings


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--override-generation-config.temperature", "0.5"], {"temperature": 0.5}),
        (["--override_generation_config.top_k=5"], {"top_k": 5}),
        (["--override-generation-config.a.b_c", "true"], {"a": {"b_c": True}}),
        (["--override-generation-config.a", "text"], {"a": "text"}),
        (["--override-generation-config.a", "2k"], {"a": 2_000}),
        (["--override-generation-config.a+", "x,y"], {"a": ["x", "y"]}),
        (["--override-generation-config.a", '{"b": [1]}'], {"a": {"b": [1]}}),
        (
            [
                *("--override-generation-config", '{"a": 1, "c": {"d": 1}}'),
                *("--override-generation-config.b", "2", "--override-generation-config.c.e", "3"),
            ],
            {"a": 1, "c": {"d": 1, "e": 3}, "b": 2},
        ),
    ],
)
def test_objects_may_be_spelled_with_dots(words: list[str], value: dict[str, Any]) -> None:
    assert given(*words) == {"override_generation_config": value}


@pytest.mark.parametrize(
    "words",
    [
        ["--tensor-parallel-size", "4"],
        ["--tensor_parallel_size=4"],
        ["-tp", "4"],
        ["--enforce-eager"],
        ["--no-enforce-eager"],
        ["--enable-prefix-caching"],
        ["--no-enable-prefix-caching"],
        ["--gpu-memory-utilization", "0.9"],
        ["--compilation-config", '{"level": 3}'],
        ["--compilation-config.level", "3"],
        ["-cc.level=3"],
        ["-O3"],
        ["--lora-modules", "a=b", "c=d", "--port", "8000"],
        ["--max-num-queued-reqs", "16"],
        ["--trust-remote-code"],
        ["--mm-encoder-tp-mode", "data"],
        ["--mm-embeds"],
    ],
)
def test_flags_of_the_engine_are_accepted_with_a_warning(words: list[str]) -> None:
    line = read("m", *words)
    assert line.config == RenderConfig(model="m")
    assert len(line.warnings) == 1
    assert "no effect" in line.warnings[0]


@pytest.mark.parametrize("words", [["--enable-scale-out"], ["--disable-scale-out"]])
def test_the_scale_out_flag_is_accepted_silently(words: list[str]) -> None:
    assert read(*words).warnings == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prot", "1"], "unknown flag `--prot`; did you mean --port?"),
        (["--tensor-parallel-sise=1"], "did you mean --tensor-parallel-size?"),
        (["--chat_template_contentformat", "x"], "did you mean --chat-template-content-format?"),
        (["--xyzzy"], "unknown flag `--xyzzy`"),
        (["-z"], "unknown flag `-z`"),
        (["a", "b"], "unexpected argument `b`"),
        (["--port"], "argument --port: expected one argument"),
        (["--port", "x"], "port: `x` is not a whole number"),
        (["--port.a", "1"], "unknown flag `--port.a`; did you mean --port?"),
        (["--hf-overrides", "{"], "hf-overrides: `{` is not JSON (expecting property name"),
        (["--hf-overrides", "[]"], "hf-overrides: a JSON object is needed"),
        (["--hf-overrides", "1", "--hf-overrides.a", "1"], "a JSON object is needed"),
        (["--hf-overrides.", "1"], "`.`: a name is missing beside a dot"),
        (["--hf-overrides.a..b", "1"], "`.a..b`: a name is missing beside a dot"),
        (["--hf-overrides.+", "1"], "`.`: a name is missing beside a dot"),
        (["--ssl-ca-certs", "x"], "--ssl-ca-certs and --ssl-cert-reqs need --ssl-keyfile"),
        (["--ssl-cert-reqs", "2"], "--ssl-ca-certs and --ssl-cert-reqs need --ssl-keyfile"),
        (["--hf-overrides.a"], "--hf-overrides.a: a value is missing"),
        (["--allowed-origins", '{"a": 1}'], "a list of strings is needed"),
        (["--omit-null=perhaps"], "omit-null: `perhaps` is neither true nor false"),
        (["--tensor-parallel-size"], "--tensor-parallel-size: a value is missing"),
        ([""], "model: an empty value"),
        (["--model", ""], "model: an empty value"),
        (["--api-key", ""], "api-key: an empty value"),
        (["--api-key", "k", ""], "api-key: an empty value"),
        (["--request-timeout", "nan"], "request-timeout: a finite number is needed, not `nan`"),
        (["--hf-overrides", "[" * 100_000], "hf-overrides: `[[[["),
        (["--hf-overrides", '{"a": ' + "1" * 5_000 + "}"], "holds a number of too many digits"),
        (["--config"], "--config: a file name is missing"),
        (["--config", "/nowhere.yaml"], "cannot read `/nowhere.yaml` (no such file"),
        (["--enable-auto-tool-choice"], "--enable-auto-tool-choice needs --tool-call-parser"),
        (["--tool-call-parser", "hermez"], "tool-call-parser: unknown value `hermez`; known: "),
    ],
)
def test_mistakes_are_refused_in_one_sentence(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(*words)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1_000


def test_dotted_values_that_are_no_json_are_text() -> None:
    for text in ("[" * 100_000, "1" * 5_000, "{"):
        assert given("--hf-overrides.a", text) == {"hf_overrides": {"a": text}}


def test_a_wrong_variable_for_the_scale_out_routes_is_named() -> None:
    with pytest.raises(ConfigError, match=r"variable VLLM_ENABLE_SCALE_OUT_ENDPOINTS: .*`x` is"):
        read(VLLM_ENABLE_SCALE_OUT_ENDPOINTS="x")


def test_an_explicit_zero_for_the_scale_out_routes_is_refused() -> None:
    for value in ("", "1", "true"):
        assert read(VLLM_ENABLE_SCALE_OUT_ENDPOINTS=value).warnings == []
    for value in ("0", "false"):
        with pytest.raises(ConfigError, match="VLLM_ENABLE_SCALE_OUT_ENDPOINTS"):
            read(VLLM_ENABLE_SCALE_OUT_ENDPOINTS=value)


def test_a_file_stands_between_the_command_line_and_the_environment(
    tmp_path: pathlib.Path,
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        """
        model: from-file
        port: 9
        max_stop_strings: 5
        served-model-name: [a, b]
        omit-null: true
        enable_fastapi_docs: false
        disable-uvicorn-access-log: true
        allowed-origins: ["https://x"]
        override-generation-config: {temperature: 0.5, stop: [1]}
        chat-template: "{{ x }}"
        tensor-parallel-size: 2
        enforce-eager: true
        host: null
        max-model-len: 32k
        """
    )
    environment = {"VLLM_MAX_STOP_STRINGS": "7", "VLLM_MAX_N_SEQUENCES": "8"}
    words = ["--config", str(file), "--port", "1", "--override-generation-config.top_k", "3"]
    assert given(*words, **environment) == {
        "model": "from-file",
        "port": 1,
        "max_stop_strings": 5,
        "max_n_sequences": 8,
        "served_model_name": ("a", "b"),
        "omit_null": True,
        "enable_fastapi_docs": False,
        "allowed_origins": ("https://x",),
        "override_generation_config": {"top_k": 3},
        "chat_template": "{{ x }}",
        "max_model_len": 32_000,
    }
    assert given("cli", f"--config={file}")["model"] == "cli"
    assert len(read("--config", str(file)).warnings) == 2


def bomb(first: str, level: str) -> str:
    """Anchors, each of which refers ten times to the one before it."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{i}: &a{i} {level.format(', '.join([f'*a{i - 1}'] * 10))}" for i in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", ": unknown flag `--prot`; did you mean --port?"),
        ("input: x", ": unknown flag `--input`"),
        ("- a", "must hold a mapping"),
        ("a: [", "is not YAML (line "),
        ("\0", "is not YAML ("),
        ("port: x", ": port: `x` is not a whole number"),
        ("port: {a: 1}", ": `port` must be a single value, not `{'a': 1}`"),
        ("port: [1]", ": `port` must be a single value"),
        ("omit-null: 3", ": omit-null: `3` is neither true nor false"),
        ("omit-null: [true]", ": `omit-null` must be a single value"),
        ("chat-template: {a: 1}", ": `chat-template` must be a single value"),
        ("served-model-name: {a: 1}", ": `served-model-name` must be a single value"),
        ("served-model-name: [{a: 1}]", ": `served-model-name` must be a list of strings"),
        ("middleware: [null]", ": `middleware` must be a list of strings"),
        ("hf-overrides: [1]", ": hf-overrides: a JSON object is needed"),
        ("hf-overrides: {a: !!set {b}}", ": `hf-overrides` holds what JSON cannot: `set`"),
        ("config: x", ": `config` goes on the command line"),
        ("a: 1\nb: !!bool x", "is not YAML (line 2: a value that cannot be read)"),
        ("a: 2024-13-45", "is not YAML (line 1: a value that cannot be read)"),
        (f"port: {'1' * 5_000}", "is not YAML (line 1: a value that cannot be read)"),
        ("hf-overrides: &a {b: *a}", "is nested too deeply; an alias within its own anchor"),
        ("hf-overrides: &a [*a]", "is nested too deeply"),
        (f"a: {'[' * 3_000}", "is nested too deeply"),
        (bomb("[x, x]", "[{}]"), "holds more than 100000 values"),
        (bomb("{x: 1, y: 2}", "{{<<: [{}]}}"), "unknown flag `--a"),
        (f"a: {'x' * (1 << 20)}", "is larger than 1048576 bytes"),
    ],
)
def test_mistakes_in_a_file_are_refused(tmp_path: pathlib.Path, text: str, message: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read("--config", str(file))
    assert message in str(refused.value)
    assert f"`{file}`" in str(refused.value)
    assert len(str(refused.value)) < 1_000


def test_a_file_may_begin_with_a_mark_and_hold_dates_and_anchors(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "config.yaml"
    text = "hf-overrides: &o {day: 2024-01-02}\ndefault-chat-template-kwargs: {<<: *o, b: 1}\n"
    file.write_text(text, encoding="utf-8-sig")
    assert given("--config", str(file)) == {
        "hf_overrides": {"day": "2024-01-02"},
        "default_chat_template_kwargs": {"day": "2024-01-02", "b": 1},
    }


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        read("--help")
    assert left.value.code == 0
    text = capsys.readouterr().out
    for name in RenderConfig.__slots__:
        assert f"--{name.replace('_', '-')}" in text


def test_every_flag_of_the_reference_is_known(tmp_path: pathlib.Path) -> None:
    """The flags of the conformance suites, with the values that they have there."""
    suites = pathlib.Path(__file__).parents[2].parent / "shared" / "conformance" / "suites"
    import os

    if "FASTRENDER_SHARED" in os.environ:
        suites = pathlib.Path(os.environ["FASTRENDER_SHARED"]) / "conformance" / "suites"
    if not suites.is_dir():
        pytest.skip("the conformance suites are not here (set FASTRENDER_SHARED)")
    for file in suites.glob("*.json"):
        arguments = json.loads(file.read_text())["serve_args"].split()
        assert read("m", *arguments).config.model == "m", file.name
