"""Model folders for tests: made on the spot from the embedded tokenizer, or those in ../shared."""

import json
import os
import pathlib
import shutil
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EMBEDDED = ROOT / "python" / "fastrender" / "embedded"
GOLDEN = ROOT / "tests" / "golden"
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def write_folder(folder: pathlib.Path, files: dict[str, Any], *, tokenizer: bool = True) -> str:
    """Write `files`, objects as JSON, beside the embedded tokenizer.json; the folder's name."""
    folder.mkdir(exist_ok=True)
    if tokenizer:
        shutil.copy(EMBEDDED / "tokenizer.json", folder)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_bytes(text.encode())
    return str(folder)


def golden(name: str) -> dict[str, Any]:
    """A golden file's content."""
    value: dict[str, Any] = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    return value


def asset_folders() -> list[pathlib.Path]:
    """The real model folders beside the repository, or none if there are not any."""
    shared = os.environ.get("FASTRENDER_SHARED") or ROOT.parent / "shared"
    assets = pathlib.Path(shared) / "assets"
    if not assets.is_dir():
        return []
    folders = [path for path in sorted(assets.iterdir()) if path.is_dir()]
    return [path for path in folders if path.name != "corpora" and not path.name.startswith("_")]


def needs_assets() -> None:
    """Skip the test where the real model folders are not."""
    if not asset_folders():
        pytest.skip("the model folders of ../shared/assets are not here (set FASTRENDER_SHARED)")
