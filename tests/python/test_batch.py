import io
import json
import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrender import batch, cli
from fastrender.config import RenderConfig
from stand_in import Renderer


def render(text: bytes, *, route: str = "auto", most_bytes: int = 1 << 20) -> tuple[list[str], int]:
    sink = io.BytesIO()
    source = io.BytesIO(text)
    progress = batch.Progress(io.StringIO(), source)
    failures = batch.render_lines(
        Renderer(), source, sink, route=route, most_bytes=most_bytes, progress=progress, threads=3
    )
    return sink.getvalue().decode().splitlines(), failures


def test_answers_come_in_the_order_of_the_requests() -> None:
    sizes = [(7 * number) % 5_000 for number in range(500)]
    lines = [json.dumps({"messages": [], "pad": size}) for size in sizes]
    answers, failures = render("\n".join(lines).encode())
    assert failures == 0
    assert [len(json.loads(answer)["pad"]) for answer in answers] == sizes


@pytest.mark.parametrize(
    ("line", "route"),
    [
        ('{"messages": []}', "chat"),
        ('{"prompt": "x"}', "completions"),
        ('{"prompt": "\\"messages\\""}', "completions"),
        ('{"prompt": "x", "metadata": {"messages": 1}}', "completions"),
        ('{"other": 1}', "chat"),
    ],
)
def test_the_route_follows_from_the_body(line: str, route: str) -> None:
    answers, _ = render(line.encode())
    assert json.loads(answers[0])["route"] == route


def test_a_given_route_stands() -> None:
    answers, _ = render(b'{"messages": []}\n', route="completions")
    assert json.loads(answers[0])["route"] == "completions"


def test_errors_are_envelopes_in_their_place() -> None:
    answers, failures = render(b'{"messages": 1}\n{bad\n\n  \n{"messages": 2}')
    assert failures == 1
    assert [("error" in json.loads(answer)) for answer in answers] == [False, True, False]


def test_a_line_that_is_too_long_gets_an_error_and_the_next_is_read() -> None:
    long = b'{"messages": "' + b"x" * 300_000 + b'"}'
    answers, failures = render(long + b'\n{"messages": 1}\n', most_bytes=1_000)
    assert failures == 1
    assert json.loads(answers[0])["error"]["code"] == 413
    assert json.loads(answers[1])["route"] == "chat"


@given(st.lists(st.sampled_from([b"", b" ", b"{}", b"[", b'{"pad": 3}', b"x" * 30]), max_size=20))
def test_every_line_that_is_not_blank_gets_an_answer(lines: list[bytes]) -> None:
    answers, failures = render(b"\n".join(lines), most_bytes=20)
    assert len(answers) == sum(bool(line.strip()) for line in lines)
    assert failures == sum(line in (b"[", b"x" * 30) for line in lines)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "in"
    file.write_bytes(b"x" * 10)
    with file.open("rb") as source:
        source.read(5)
        for screen, shown in ((Screen(), True), (io.StringIO(), False)):
            progress = batch.Progress(screen, source)
            progress.advance(3, 1)
            progress.finish()
            assert bool(screen.getvalue()) is shown
            if shown:
                assert " 50% 3 rows" in screen.getvalue()
                assert "1 failed" in screen.getvalue()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(config: RenderConfig) -> Renderer:
        return Renderer()

    monkeypatch.setattr(cli, "load_renderer", load)


@pytest.mark.usefixtures("loaded")
def test_the_command_renders_a_file(tmp_path: pathlib.Path) -> None:
    source, sink = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"messages": []}\n{"prompt": "x"}\n')
    words = ["render", "m", "--input", str(source), "--output", str(sink)]
    assert cli.main(words) == 0
    answers = [json.loads(line) for line in sink.read_text().splitlines()]
    assert [answer["route"] for answer in answers] == ["chat", "completions"]
    source.write_text("{bad")
    assert cli.main([*words, "--route", "chat"]) == 1


@pytest.mark.usefixtures("loaded")
def test_a_missing_file_is_one_sentence(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["render", "--input", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


PACKAGE = pathlib.Path(__file__).parents[2] / "python"
REQUEST = '{"messages": [{"role": "user", "content": "Hi"}]}\n'


def run_in_shell(command: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run `command`, in which `$RENDER` is the command, as bash does; with the embedded model."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(PACKAGE),
        "RENDER": f"{sys.executable} -m fastrender render",
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_a_line_nested_too_deeply_ends_no_other() -> None:
    deep = b'{"messages": ' + b"[" * 100_000
    many_digits = b'{"prompt": "\\"messages\\"", "n": ' + b"1" * 5_000 + b"}"
    named = b'{"prompt": "x", "metadata": {"messages": ' + b"1" * 5_000 + b"}}"
    answers, failures = render(b"\n".join([b"{}", deep, many_digits, named, b"{}"]))
    assert len(answers) == 5
    assert failures == 3
    assert ["error" in json.loads(answer) for answer in answers] == [False, *[True] * 3, False]


def test_a_failure_of_the_renderer_ends_no_other_line(caplog: pytest.LogCaptureFixture) -> None:
    answers, failures = render(b'{"messages": 1}\n{"messages": 1, "fail": true}\n{"messages": 1}')
    assert failures == 1
    error = json.loads(answers[1])["error"]
    assert (error["type"], error["code"]) == ("InternalServerError", 500)
    assert "secret" not in error["message"]
    assert "secret" in caplog.text


def test_a_mark_at_the_start_of_the_file_is_no_part_of_the_first_line() -> None:
    answers, failures = render(b"\xef\xbb\xbf \n\xef\xbb\xbf{}")
    assert (len(answers), failures) == (1, 0)
    answers, failures = render(b'\xef\xbb\xbf{"pad": 3}', most_bytes=12)
    assert failures == 0


@pytest.mark.parametrize(
    "words",
    [
        "--input a --output a",
        "--input a --output symbolic",
        "--input hard --output symbolic",
        "--output hard < a",
        "--input a >> a",
    ],
)
def test_the_input_is_never_written_over(words: str, tmp_path: pathlib.Path) -> None:
    source = tmp_path / "a"
    source.write_text(REQUEST)
    (tmp_path / "symbolic").symlink_to(source)
    (tmp_path / "hard").hardlink_to(source)
    ran = run_in_shell(f"$RENDER {words}", tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.startswith("fastrender: --output is the file that --input reads, ")
    assert source.read_text() == REQUEST


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "none"], "cannot read `none`: no such file or directory"),
        (["--input", "folder"], "cannot read `folder`: is a directory"),
        (["--input", "in", "--output", "folder"], "cannot write `folder`: is a directory"),
        (["--input", "in", "--output", "none/x"], "cannot write `none/x`: no such file or dir"),
        (["--input", "in", "--output", "/dev/full"], "cannot write `/dev/full`: no space left"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    words: list[str],
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "in").write_text(REQUEST)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["render", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"fastrender: {message}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("$RENDER --input in | head -1 > out; exit ${PIPESTATUS[0]}", 141, ""),
        ("$RENDER --input in <&- >&-", 1, "cannot write stdout: it is closed; --output names a f"),
        ("$RENDER <&-", 1, "cannot read stdin: it is closed; --input names a file"),
        ("$RENDER --input in > /dev/full", 1, "cannot write stdout: no space left on device"),
        ("$RENDER --input in --output out <&- >&- 2>&-", 0, ""),
    ],
)
def test_broken_closed_and_full_streams(
    command: str, code: int, message: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "in").write_text(REQUEST * 2_000)
    ran = run_in_shell(command, tmp_path)
    assert ran.returncode == code
    assert ran.stderr.startswith(f"fastrender: {message}" if message else "")
    assert ran.stderr.count("\n") == bool(message)
    assert ran.stdout == ""
