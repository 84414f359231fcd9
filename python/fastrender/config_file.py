"""The YAML file that `--config` names, as the words of a command line that it stands for."""

import datetime
import json
from collections.abc import Iterator
from typing import Any

import yaml

from fastrender.config import RenderConfig
from fastrender.settings import ConfigError, Shape, declared, shown

# A file of settings is small; what aliases make of it must stay so.
_MOST_BYTES = 1 << 20
_MOST_ALIASES = 1_000
_MOST_KEYS = 1_000
_MOST_VALUES = 100_000
_DEEPEST = 100


def words_of_file(path: str) -> Iterator[str]:
    """The words of a command line that the YAML file at `path` stands for."""
    settings = _read(path)
    if settings is None:
        return
    if not isinstance(settings, dict):
        raise ConfigError(f"the config file `{path}` must hold a mapping of settings")
    shapes = {
        spelling: declaration.shape
        for name, declaration in declared(RenderConfig).items()
        for spelling in declaration.on_spellings(name)
    }
    for key, value in settings.items():
        name = str(key).replace("_", "-")
        if name in ("config", "help"):
            raise ConfigError(f"`{path}`: `{key}` goes on the command line")
        try:
            yield from _words(f"--{name}", value, shapes.get(f"--{name}"))
        except ValueError as error:
            raise ConfigError(f"`{path}`: `{shown(key)}` {error}") from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, bounded; it names the line of a value that cannot be."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self._aliases += 1
            if self._aliases > _MOST_ALIASES:
                raise yaml.YAMLError("too many aliases")
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MOST_KEYS:
            raise self._wrong("too many keys in one mapping", node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise self._wrong("a value that cannot be read", node) from error

    @staticmethod
    def _wrong(problem: str, place: Any) -> yaml.MarkedYAMLError:
        return yaml.MarkedYAMLError(None, None, problem, place.start_mark)


def _read(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"config: cannot read `{path}` ({why.lower()})") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"the config file `{path}` is larger than {_MOST_BYTES} bytes")
    try:
        # The mark that some editors begin a file with is no part of it.
        settings = yaml.load(content.decode("utf-8-sig"), _Loader)
        _check_size(settings)
    except UnicodeDecodeError as error:
        raise ConfigError(f"config: cannot read `{path}` (it is not UTF-8)") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(
            f"the config file `{path}` is not YAML (line {line}: {error.problem})"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"the config file `{path}` is not YAML ({shown(error)})") from error
    except RecursionError as error:
        raise ConfigError(f"the config file `{path}` is nested too deeply") from error
    except ValueError as error:
        raise ConfigError(f"the config file `{path}` {error}") from error
    return settings


def _check_size(settings: Any) -> None:
    """Refuse what aliases made endless or too large: each of them counts as what it stands for."""
    waiting = [(settings, 0)]
    count = 0
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if depth > _DEEPEST:
            raise ValueError("is nested too deeply; an alias within its own anchor has no end")
        if count > _MOST_VALUES:
            raise ValueError(f"holds more than {_MOST_VALUES} values, with all aliases written out")
        if isinstance(value, dict):
            waiting.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, list | tuple | set):
            waiting.extend((item, depth + 1) for item in value)


def _words(flag: str, value: Any, shape: Shape | None) -> Iterator[str]:
    """The words of one setting; `ValueError` says what it must be, in the middle of a sentence."""
    if value is None:
        return
    if isinstance(value, list) and shape in (Shape.LIST, Shape.REPEATED, None):
        if shape is not None and any(item is None or _is_nested(item) for item in value):
            raise ValueError(f"must be a list of strings, not `{shown(value)}`")
        items = [_text(item) for item in value]
        if shape is Shape.REPEATED:
            yield from (f"{flag}={item}" for item in items)
        else:
            yield flag
            yield from items
    elif _is_nested(value):
        if shape not in (Shape.JSON, None):
            raise ValueError(f"must be a single value, not `{shown(value)}`")
        yield f"{flag}={_json(value)}"
    else:
        yield f"{flag}={_text(value)}"


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list | set)


def _text(value: Any) -> str:
    if isinstance(value, str | int | float | datetime.date):
        return str(value)
    return _json(value)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=_plain)
    except TypeError as error:
        raise ValueError(f"holds what JSON cannot: `{shown(error)}`") from error


def _plain(value: Any) -> str:
    if isinstance(value, datetime.date):
        return str(value)
    raise TypeError(type(value).__name__)
