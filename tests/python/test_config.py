import dataclasses
import json
import pathlib
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrender.config import EMBEDDED_MODEL, RenderConfig, read_template
from fastrender.settings import ConfigError, declared, merge, parse_count, parse_count_or_auto


def test_without_settings_the_embedded_model_is_served() -> None:
    config = RenderConfig()
    assert config.model == EMBEDDED_MODEL == "fastrender/tiny"
    assert config.port == 8000
    assert config.max_request_bytes == 64 << 20


def test_every_setting_has_help_and_survives_pickling() -> None:
    assert all(setting.help.endswith(".") for setting in declared(RenderConfig).values())
    config = RenderConfig(default_chat_template_kwargs={"a": 1}, api_key=("k",))
    assert pickle.loads(pickle.dumps(config)) == config


def test_native_settings_are_plain_json_with_the_template_read(tmp_path: pathlib.Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages }}é", encoding="utf-8")
    config = RenderConfig(chat_template=str(template), omit_null=True)
    settings = json.loads(json.dumps(config.native_settings()))
    assert settings["chat_template"] == "{{ messages }}é"
    assert settings["omit_null"] is True
    assert settings["cohere_format"] == "cmd4"
    assert settings["max_stop_strings"] == 4
    assert "port" not in settings


def test_native_settings_are_those_that_the_core_knows() -> None:
    source = pathlib.Path(__file__).parents[2] / "rust" / "core" / "src" / "spec.rs"
    text = source.read_text(encoding="utf-8")
    body = text.partition("pub struct RenderSettings {")[2].partition("\n}")[0]
    lines = (line.strip() for line in body.splitlines())
    known = {line.split(":")[0].removeprefix("pub ") for line in lines if line.startswith("pub ")}
    assert set(RenderConfig().native_settings()) == known


@pytest.mark.parametrize("literal", ["{{ x }}", "a\nb", "}"])
def test_a_literal_template_is_itself(literal: str) -> None:
    assert read_template(literal) == literal


def test_a_named_template_is_left_to_the_tokenizer() -> None:
    assert read_template("tool_use", ["tool_use", "default"]) == "tool_use"
    with pytest.raises(ConfigError, match=r"cannot read the file `tool_use`.*default"):
        read_template("tool_use", ["default"])


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tool_call_parser": "hermez"}, "unknown value `hermez`; known: hermes, "),
        ({"reasoning_parser": "hermes"}, "unknown value `hermes`; known: qwen3, "),
        ({"enable_auto_tool_choice": True}, "needs --tool-call-parser"),
        ({"chat_template_content_format": "json"}, "known: auto, string, openai"),
        ({"port": 65_536}, "port: `65536` is more than 65535"),
        ({"port": "x"}, "port: `x` is not a whole number"),
        ({"port": -1}, "port: `-1` is less than 0"),
        ({"workers": 0}, "workers: `0` is less than 1"),
        ({"max_model_len": 0}, "max-model-len: `0` is less than 1"),
        ({"ssl_keyfile": "k"}, "go together"),
        ({"reasoning_effort_map": {"high": "huge"}}, "unknown effort `huge`"),
        ({"reasoning_effort_map": {"high": 3}}, "unknown effort `3`"),
        ({"default_chat_template_kwargs": [1]}, "a JSON object is needed"),
        ({"allowed_origins": "x"}, "a list of strings is needed"),
        ({"served_model_name": [1]}, "a list of strings is needed"),
        ({"served_model_name": "x"}, "served-model-name: a list of strings is needed, not `x`"),
        ({"port": True}, "port: a whole number is needed, not `True`"),
        ({"port": 1.5}, "port: a whole number is needed, not `1.5`"),
        ({"port": None}, "port: a whole number is needed, not `None`"),
        ({"port": [1]}, "port: a whole number is needed"),
        ({"omit_null": 1}, "omit-null: true or false is needed, not `1`"),
        ({"omit_null": "perhaps"}, "omit-null: `perhaps` is neither true nor false"),
        ({"request_timeout": b"1"}, "request-timeout: a number is needed"),
        ({"model": 5}, "model: a string is needed, not `5`"),
        ({"model": b"x"}, "model: a string is needed"),
        ({"model": ""}, "model: an empty value; give one"),
        ({"tokenizer": ""}, "tokenizer: an empty value"),
        ({"ssl_keyfile": "", "ssl_certfile": ""}, "ssl-keyfile: an empty value"),
        ({"api_key": ["k", ""]}, "api-key: an empty value"),
        ({"model": "a\udcff"}, "is not UTF-8"),
        ({"api_key": ["\udcff"]}, "api-key: `.*` is not UTF-8"),
        ({"template_fuel": 2**63}, "template-fuel: `9223372036854775808` is more than"),
        ({"template_fuel": "1" * 5_000}, "template-fuel: `1{60}…` has too many digits"),
        ({"default_chat_template_kwargs": {"a": "\ud800"}}, "a lone surrogate"),
        ({"default_chat_template_kwargs": {"a": object()}}, "cannot be written as JSON"),
        ({"default_chat_template_kwargs": nested(101)}, "nested too deeply"),
        ({"default_chat_template_kwargs": nested(100_000)}, "nested too deeply"),
        ({"limit_mm_per_prompt": {"image": "x"}}, "`image` must be a count, not `x`"),
        ({"limit_mm_per_prompt": {"image": -1}}, "`image` must be a count, not `-1`"),
        ({"root_path": "https://x/y"}, "root-path: `https://x/y` is no path"),
        *(
            ({name: value}, f"{name.replace('_', '-')}: .*needed|less than 0|more than")
            for name in ("request_timeout", "shutdown_timeout", "timeout_keep_alive")
            for value in ("nan", "inf", "-inf", "-1", "1e300", float("nan"), float("inf"), -1, 2e9)
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")) as refused:
        RenderConfig(**settings)
    assert len(str(refused.value)) < 1_000


def test_values_that_mean_something_may_be_empty(tmp_path: pathlib.Path) -> None:
    config = RenderConfig(hf_token="", host="", root_path="", cohere_format="")
    assert (config.hf_token, config.host, config.root_path) == ("", "", "")
    # What a library's caller may write.
    config = RenderConfig(
        model=tmp_path,  # type: ignore[arg-type]
        omit_null="true",  # type: ignore[arg-type]
        request_timeout=3,
        limit_mm_per_prompt={"image": {"count": 3}, "video": 1},
        default_chat_template_kwargs=nested(90),
    )
    assert (config.model, config.omit_null) == (str(tmp_path), True)


def test_given_settings_win_over_the_environment() -> None:
    environment = {
        "VLLM_MAX_STOP_STRINGS": "7",
        "VLLM_HTTP_MAX_REQUEST_BODY_SIZE": "1000",
        "VLLM_SKIP_MODEL_NAME_VALIDATION": "1",
        "VLLM_API_KEY": "from-vllm",
        "FASTRENDER_API_KEY": "own",
        "VLLM_MAX_N_SEQUENCES": "",
    }
    config = RenderConfig.resolve({"max_request_bytes": 5}, environment)
    assert config.max_stop_strings == 7
    assert config.max_request_bytes == 5
    assert config.skip_model_name_validation is True
    assert config.api_key == ("own",)
    assert config.max_n_sequences == 16_384
    assert RenderConfig.resolve({"api_key": ("a", "b")}, environment).api_key == ("a", "b")
    # An empty variable is none, but an empty key that is given would open the server.
    with pytest.raises(ConfigError, match="api-key: an empty value"):
        RenderConfig.resolve({"api_key": ("",)}, environment)
    assert RenderConfig.resolve({}, {"VLLM_API_KEY": "x"}).api_key == ("x",)


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"environment variable VLLM_MAX_STOP_STRINGS: .*`x`"):
        RenderConfig.resolve({}, {"VLLM_MAX_STOP_STRINGS": "x"})


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown setting `modell`"):
        RenderConfig.resolve({"modell": "x"}, {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("1k", 1_000),
        ("1K", 1_024),
        ("25.6k", 25_600),
        ("2M", 2 << 20),
        ("2m", 2_000_000),
        ("1g", 10**9),
        (" 3 ", 3),
        ("-1", -1),
    ],
)
def test_counts(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("text", ["", "k", "1.5", "1.5K", "1kk", "0x10", "1e3", "ten"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a whole number"):
        parse_count(text)


def test_text_is_understood_from_python_too() -> None:
    assert RenderConfig(max_model_len="32k").max_model_len == 32_000  # type: ignore[arg-type]


def test_auto_is_no_count() -> None:
    assert parse_count_or_auto("auto") is None
    assert parse_count_or_auto("-1") is None
    assert parse_count_or_auto("32k") == 32_000


objects = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3)
)
documents = st.dictionaries(st.text(max_size=2), objects, max_size=3)


@given(documents, documents)
def test_a_merge_holds_the_overlay_and_what_it_left(
    base: dict[str, Any], overlay: dict[str, Any]
) -> None:
    merged = merge(base, overlay)
    assert merge(merged, overlay) == merged
    assert merge(base, {}) == base
    assert list(merged)[: len(base)] == list(base)
    for key, value in overlay.items():
        if not isinstance(value, dict) or not isinstance(base.get(key), dict):
            assert merged[key] == value


def test_settings_are_declared_for_every_field() -> None:
    assert len(declared(RenderConfig)) == len(dataclasses.fields(RenderConfig))


def test_the_time_that_templates_are_told_is_a_local_time() -> None:
    time = RenderConfig(strftime_now="2026-12-01T12:30:00").native_settings()["strftime_now"]
    assert (time["year"], time["month"], time["day"], time["minute"]) == (2026, 12, 1, 30)
    assert RenderConfig().native_settings()["strftime_now"] is None
    for wrong in ("yesterday", "2026-13-01", "2026-12-01T12:00:00+01:00", ""):
        with pytest.raises(ConfigError, match="strftime-now"):
            RenderConfig(strftime_now=wrong)
