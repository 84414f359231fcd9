import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fake_hub import COMMIT, FakeHub
from folders import EMBEDDED, LLAMA

TOKENIZER = (EMBEDDED / "tokenizer.json").read_bytes()
CONFIG = json.dumps({**LLAMA, "max_position_embeddings": 512}).encode()
PROGRAM = """
import json, sys
from fastrender import model_folder
from fastrender.config import RenderConfig
try:
    folder = model_folder.load(RenderConfig(**json.loads(sys.argv[1])))
except model_folder.ModelFolderError as error:
    print(json.dumps({"error": str(error)}))
else:
    names = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*.*"))
    print(json.dumps({"spec": folder.spec.to_json(), "files": names}))
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    files = {
        "config.json": CONFIG,
        "tokenizer.json": TOKENIZER,
        "chat_template.jinja": b"default",
        "additional_chat_templates/tool_use.jinja": b"tools",
        "model.safetensors": b"weights",
        "pytorch_model.bin": b"weights",
        "README.md": b"text",
    }
    spm = {"config.json": CONFIG, "tokenizer.model": b"spm", "model.safetensors": b"weights"}
    with FakeHub({"someone/model": files, "someone/spm": spm}) as hub:
        yield hub


def load(url: str, cache: pathlib.Path, settings: dict[str, Any], **environment: str) -> Any:
    """Load in a process of its own: the hub's library reads the environment when it is imported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    variables = {"HF_ENDPOINT": url, "HF_HOME": str(cache), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(settings)],
        env={**kept, **variables, **environment},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_only_the_files_that_are_needed_are_fetched_and_then_kept(
    hub: FakeHub, tmp_path: pathlib.Path
) -> None:
    settings = {"model": "someone/model"}
    loaded = load(hub.url, tmp_path, settings, HF_TOKEN="hf_secret")
    assert loaded["spec"]["name"] == "someone/model"
    assert loaded["spec"]["max_model_len"] == 512
    assert loaded["spec"]["chat_templates"] == {"default": "default", "tool_use": "tools"}
    assert loaded["files"] == [
        "additional_chat_templates/tool_use.jinja",
        "chat_template.jinja",
        "config.json",
        "tokenizer.json",
    ]
    assert not [path for path in hub.requests if path.endswith((".safetensors", ".bin", ".md"))]
    assert "Bearer hf_secret" in hub.tokens
    before = len(hub.requests)
    assert load(hub.url, tmp_path, settings, HF_HUB_OFFLINE="1") == loaded
    assert len(hub.requests) == before


def test_a_revision_is_honoured(hub: FakeHub, tmp_path: pathlib.Path) -> None:
    loaded = load(hub.url, tmp_path, {"model": "someone/model", "revision": COMMIT})
    assert loaded["spec"]["max_model_len"] == 512
    lost = load(hub.url, tmp_path, {"model": "someone/model", "revision": "v9"})
    assert lost == {"error": "the hub's `someone/model` has no revision `v9`"}


def test_what_the_hub_has_instead_of_a_tokenizer_is_named(
    hub: FakeHub, tmp_path: pathlib.Path
) -> None:
    error = load(hub.url, tmp_path, {"model": "someone/spm"})["error"]
    assert error.startswith(
        "`someone/spm` has a SentencePiece tokenizer (`tokenizer.model`) but no"
    )


@pytest.mark.parametrize(
    ("name", "environment", "words"),
    [
        ("nobody/model", {}, "there is no folder `nobody/model`, and no such model on the hub"),
        ("gated/model", {}, "the hub lets only people whom its owner admitted"),
        (
            "someone/model",
            {"HF_HUB_OFFLINE": "1"},
            "there is no folder `someone/model`, no copy of it in the hub's cache, and "
            "HF_HUB_OFFLINE is set",
        ),
        (
            "someone/model",
            {"HF_ENDPOINT": "http://127.0.0.1:9"},
            "no copy of it in the hub's cache, and the hub cannot be reached",
        ),
        ("some--one/model", {}, "neither a folder nor a hub id"),
    ],
)
def test_why_a_model_is_not_to_be_had(
    name: str,
    environment: dict[str, str],
    words: str,
    hub: FakeHub,
    tmp_path: pathlib.Path,
) -> None:
    error = load(hub.url, tmp_path, {"model": name}, **environment)["error"]
    assert words in error
    assert "\n" not in error
