import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

from fastrender import cli
from fastrender.config import RenderConfig
from fastrender.version import own_version

PACKAGE = pathlib.Path(__file__).parents[2] / "python"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fastrender {own_version()}\n"


def test_the_version_needs_none_of_the_heavy_modules() -> None:
    heavy = ["argparse", "asyncio", "starlette", "uvicorn", "numpy", "PIL", "httpx", "yaml"]
    code = (
        "import sys; from fastrender import cli; cli.main(['--version']); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    started = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert ran.stdout.splitlines()[-1] == "[]"
    assert time.perf_counter() - started < 5


def test_a_server_of_text_starts_without_what_images_and_hubs_need() -> None:
    unneeded = ["numpy", "PIL", "httpx", "huggingface_hub", "prometheus_client", "yaml", "torch"]
    code = (
        "import sys; sys.path.insert(0, 'tests/python'); import stand_in; "
        "import fastrender.server.serve, fastrender.arguments; "
        f"print([name for name in {unneeded} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PACKAGE.parent,
        env={"PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a command is missing; known: serve, render"),
        (["sevre"], "unknown command `sevre`; known: serve, render"),
        (["serve", "--prot", "1"], "unknown flag `--prot`; did you mean --port?"),
        (["render", "--rout", "chat"], "unknown flag `--rout`; did you mean --route?"),
        (["serve", "--enable-auto-tool-choice"], "needs --tool-call-parser"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("fastrender: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    assert "serve" in capsys.readouterr().out


def test_a_model_that_does_not_load_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(config: RenderConfig) -> None:
        raise ValueError(f"the folder `{config.model}` lacks config.json")

    monkeypatch.setattr(cli, "load_renderer", load)
    assert cli.main(["serve", "x", "--port", "0"]) == 1
    assert capsys.readouterr().err == "fastrender: the folder `x` lacks config.json\n"


def test_a_port_in_use_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert cli.main(["serve", "--host", "127.0.0.1", "--port", port]) == 1
    error = capsys.readouterr().err
    assert error == f"fastrender: cannot listen on 127.0.0.1:{port}: address already in use\n"


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("--help | true; exit ${PIPESTATUS[0]}", 141, ""),
        ("--version > /dev/full", 1, "fastrender: cannot write stdout: no space left on device\n"),
        ("--version >&-", 0, ""),
        ("nothing 2>&-", 2, ""),
    ],
)
def test_streams_that_take_nothing(command: str, code: int, message: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m fastrender {command}"],
        env={"PYTHONPATH": str(PACKAGE), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", message)
