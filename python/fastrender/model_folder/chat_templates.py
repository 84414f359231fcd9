"""Which chat templates a folder has, as transformers 5.19 finds them."""

from collections.abc import Mapping
from typing import Any

from fastrender.model_folder.files import FolderFiles, JsonObject

_DEFAULT = "default"
_TEMPLATE_FOLDER = "additional_chat_templates"
_PROCESSOR_FILES = (
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)


def tokenizer_templates(files: FolderFiles, tokenizer_config: JsonObject | None) -> dict[str, str]:
    """The tokenizer's templates by name; one without a name is `default`.

    Files of their own go before what tokenizer_config.json says.
    """
    if templates := _template_files(files):
        return templates
    if tokenizer_config is None:
        return {}
    written = tokenizer_config.values.get("chat_template")
    if isinstance(written, str):
        return {_DEFAULT: written}
    if isinstance(written, list) and all(isinstance(entry, dict) for entry in written):
        entries = {entry.get("name"): entry.get("template") for entry in written}
        return _checked(tokenizer_config, entries)
    if isinstance(written, dict):
        return _checked(tokenizer_config, written)
    if written is not None:
        raise tokenizer_config.wrong("chat_template", "a template, or templates with names")
    return {}


def processor_template(files: FolderFiles) -> str | None:
    """The template of the folder's processor, if it has one: used when a request has no tools."""
    if not any(files.has(name) for name in _PROCESSOR_FILES):
        return None
    processor = files.json("processor_config.json")
    if processor is not None and isinstance(written := processor.values.get("chat_template"), str):
        return written
    templates = _template_files(files)
    legacy = files.json("chat_template.json")
    if legacy is None:
        return templates.get(_DEFAULT)
    # transformers refuses the old file beside named templates, and then takes the tokenizer's.
    named = any(name != _DEFAULT for name in templates)
    return None if named else legacy.text("chat_template")


def _template_files(files: FolderFiles) -> dict[str, str]:
    templates = {}
    if (default := files.text("chat_template.jinja")) is not None:
        templates[_DEFAULT] = default
    for name in files.matching("*.jinja", _TEMPLATE_FOLDER):
        source = files.text(f"{_TEMPLATE_FOLDER}/{name}")
        if source is not None:
            templates[name.removesuffix(".jinja")] = source
    return templates


def _checked(tokenizer_config: JsonObject, entries: Mapping[Any, Any]) -> dict[str, str]:
    for pair in entries.items():
        if not all(isinstance(part, str) for part in pair):
            raise tokenizer_config.wrong("chat_template", "objects with name and template")
    return dict(entries)
