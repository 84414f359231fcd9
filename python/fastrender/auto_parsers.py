"""`--tool-call-parser auto` and `--reasoning-parser auto`: found by the model, and said."""

import logging
from collections.abc import Mapping
from typing import Any

from fastrender._native import choose_parsers
from fastrender.config import AUTO
from fastrender.model_folder import ModelFolder
from fastrender.settings import ConfigError

_logger = logging.getLogger("fastrender.parsers")


def parsers_found(folder: ModelFolder, settings: Mapping[str, Any]) -> dict[str, str | None]:
    """The settings that `auto` stands for; `settings` are those of the native half.

    `ConfigError` if there is no tool format for the model: that it has none cannot be known.
    """
    asked = [name for name in ("tool_call_parser", "reasoning_parser") if settings[name] == AUTO]
    if not asked:
        return {}
    templates = folder.spec.chat_templates
    given = settings["chat_template"]
    template = templates.get(given, given) if given is not None else _own_template(folder)
    architectures = list(folder.architectures)
    tools, reasoning = choose_parsers(architectures, template)
    found = {"tool_call_parser": tools, "reasoning_parser": reasoning}
    model = f"{', '.join(architectures) or 'an unknown architecture'}"
    if "tool_call_parser" in asked and tools is None:
        raise ConfigError(
            f"tool-call-parser: auto finds no format for {model} with this chat template; name one"
        )
    for name in asked:
        flag = name.replace("_", "-")
        _logger.info("--%s auto is `%s` for %s", flag, found[name] or "none", model)
    return {name: found[name] for name in asked}


def _own_template(folder: ModelFolder) -> str:
    templates = folder.spec.chat_templates
    own = templates.get("tool_use", templates.get("default"))
    return own or folder.spec.processor_chat_template or ""
