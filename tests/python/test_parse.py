import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import pytest

from fastrender import cli, parser_names
from fastrender._native import choose_parsers, tool_format_names
from fastrender._native import parser_names as native_names

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "structural_tags.json"
CALL = '<tool_call>{"name": "now", "arguments": {"a": "é"}}</tool_call>'
OWN = """
names = ["mine"]
[call]
open = ["<<"]
close = [">>"]
[body]
kind = "json"
arguments = ["args"]
"""


def run(words: Sequence[str], text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "fastrender", "parse", *words],
        input=text,
        env={"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_the_names_are_those_of_the_engine() -> None:
    tools, reasoning = native_names()
    assert sorted(parser_names.TOOL_PARSERS) == tools
    assert sorted(parser_names.REASONING_PARSERS) == reasoning


def test_a_text_is_shown_as_a_message() -> None:
    ran = run(
        ["--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1"], f"r</think>c {CALL}"
    )
    message = json.loads(ran.stdout)
    assert (ran.returncode, message["reasoning"], message["content"]) == (0, "r", "c ")
    assert message["tool_calls"][0]["name"] == "now"
    assert message["tool_calls"][0]["arguments"] == '{"a": "é"}'


def test_cases_are_answered_a_line_each() -> None:
    tools = [{"type": "function", "function": {"name": "now"}}]
    cases = [
        {"text": CALL, "tool_parser": "hermes", "tools": tools},
        {"text": "r</think>c", "reasoning_parser": "deepseek_r1", "chunks": ["r</thi", "nk>c"]},
    ]
    ran = run([], "\n".join(json.dumps(case) for case in cases))
    first, second = map(json.loads, ran.stdout.splitlines())
    assert ran.returncode == 0
    assert first["whole"]["finish_reason"] == "tool_calls"
    assert first["every_1"]["tool_calls"][0]["id"] == first["whole"]["tool_calls"][0]["id"]
    assert second["chunks"]["deltas"] == [{"reasoning": "r"}, {"content": "c"}]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "`text`"),
        ('{"text": "x", "tool_parser": "hermez"}', "unknown tool parser `hermez`"),
        ('{"text": "x", "special": [""]}', "a token cannot be empty"),
        ('{"text": "x", "special": [1]}', "`special` must be a list of strings"),
        ('{"text": "x", "tools": [{}]}', "function"),
    ],
)
def test_a_bad_case_is_answered_and_the_next_goes_on(line: str, part: str) -> None:
    ran = run([], f'{line}\n{{"text": "x"}}\n')
    bad, good = map(json.loads, ran.stdout.splitlines())
    assert ran.returncode == 1
    assert part in bad["error"]
    assert good["whole"]["content"] == "x"


def test_an_unknown_name_is_refused_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(["--reasoning-parser", "qwen"], "x")
    assert ran.returncode == 2
    assert "unknown reasoning parser `qwen`; known: deepseek_r1" in ran.stderr


def test_a_format_of_ones_own(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN)
    ran = run(
        ["--tool-parser-file", str(file), "--tool-call-parser", "mine"],
        '<<{"name": "f", "args": {}}>>',
    )
    assert json.loads(ran.stdout)["tool_calls"][0]["name"] == "f"
    assert tool_format_names(OWN) == ["mine"]
    file.write_text("names = []")
    ran = run(["--tool-parser-file", str(file), "--tool-call-parser", "mine"], "x")
    assert ran.returncode == 2
    assert "a tool format does not read as TOML" in ran.stderr


def test_a_file_that_is_not_there(tmp_path: pathlib.Path) -> None:
    assert run(["--tool-parser-file", str(tmp_path / "none.toml")], "").returncode == 1
    assert run(["--input", str(tmp_path / "none.jsonl")], "").returncode == 1


def test_the_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert "parse" in capsys.readouterr().out


def test_auto_chooses_by_architecture_and_template() -> None:
    assert choose_parsers(["Qwen3ForCausalLM"], "<tool_call> <think>") == ("hermes", "qwen3")
    assert choose_parsers(["GptOssForCausalLM"], "") == ("openai", "openai_gptoss")
    assert choose_parsers([], "<tool_call>") == (None, None)


def test_xgrammar_takes_the_structural_tags() -> None:
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar is not installed")
    # The Rust tests hold that these are the tags that we send.
    cases = json.loads(GOLDEN.read_text())["cases"]
    tags = {case["want"].get("structural_tag") for case in cases} - {None}
    assert len(tags) > 100
    for tag in tags:
        xgrammar.Grammar.from_structural_tag(tag)


def test_recorded_outputs_are_read_as_the_reference_reads_them() -> None:
    script = ROOT.parent / "shared" / "conformance" / "run_parsers.py"
    if not script.exists():
        pytest.skip("there is no ../shared/conformance")
    ran = subprocess.run(
        [sys.executable, script, "--command", f"{sys.executable} -m fastrender parse"],
        env={"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout.splitlines()[-1] == "346 passed, 0 failed", ran.stdout[-2000:]
