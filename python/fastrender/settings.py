"""What a declared setting is, and how its text is read, wherever it stands."""

import dataclasses
import enum
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

_MULTIPLIERS = {
    **{"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12},
    **{"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40},
}
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}
_METADATA_KEY = "setting"
_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    tuple: "a list of strings",
    dict: "a JSON object",
}
# What no setting needs more than: the native half's integers, and thirty years in seconds.
_MOST: dict[type, float] = {int: 2**63 - 1, float: 1e9}
_MOST_DIGITS = 30
_DEEPEST = 100
_LONGEST_SHOWN = 60


class ConfigError(ValueError):
    """A setting that cannot be; the message is one sentence for the person who gave it."""


class Shape(enum.Enum):
    """How many words of a command line a setting takes."""

    VALUE = enum.auto()
    SWITCH = enum.auto()
    LIST = enum.auto()
    REPEATED = enum.auto()
    JSON = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting's spellings and meaning, beside the name and default that its field holds."""

    help: str
    shape: Shape = Shape.VALUE
    parse: Callable[[str], Any] = str
    flags: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    native: bool = False
    kind: type = str
    optional: bool = False
    may_be_empty: bool = False

    def on_spellings(self, name: str) -> list[str]:
        """Flags that give the setting, or turn a switch on."""
        return [f"--{dashed(name)}", *self.flags]

    def off_spellings(self, name: str) -> list[str]:
        """Flags that turn a switch off."""
        if self.shape is not Shape.SWITCH:
            return []
        spellings = [f"--no-{dashed(name)}", *self.off_flags]
        if name.startswith("enable_"):
            spellings.append(f"--disable-{dashed(name.removeprefix('enable_'))}")
        return spellings

    def read(self, name: str, text: str) -> Any:
        """The value that one word of text stands for."""
        try:
            if self.shape is Shape.SWITCH:
                return parse_switch(text)
            value = parse_json(text) if self.shape is Shape.JSON else self.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{dashed(name)}: {error}") from error
        if self.shape is Shape.JSON:
            self.check(name, value)
        return (value,) if self.shape in (Shape.LIST, Shape.REPEATED) else value

    def check(self, name: str, value: Any) -> None:
        """Refuse a value of the wrong kind, or outside of the setting's choices or bounds."""
        if value is None and self.optional:
            return
        if not _is_kind(value, self.kind):
            raise ConfigError(
                f"{dashed(name)}: {_KINDS[self.kind]} is needed, not `{shown(value)}`"
            )
        if problem := self._problem(value):
            raise ConfigError(f"{dashed(name)}: {problem}")

    def _problem(self, value: Any) -> str | None:
        if self.kind is dict:
            return _problem_of_object(value)
        if self.kind in (str, tuple):
            words = [value] if self.kind is str else value
            if "" in words and not self.may_be_empty:
                return "an empty value; give one, or leave the setting out"
            if any(_has_surrogates(word) for word in words):
                return f"`{shown(value)}` is not UTF-8"
        elif not math.isfinite(value):
            return f"a finite number is needed, not `{value}`"
        if self.choices and value not in self.choices:
            return f"unknown value `{shown(value)}`; known: {', '.join(self.choices)}"
        if self.least is not None and value < self.least:
            return f"`{value}` is less than {self.least}"
        most = self.most if self.most is not None else _MOST.get(self.kind)
        if most is not None and value > most:
            return f"`{shown(value)}` is more than {most}"
        return None


def setting(default: Any, help: str, **details: Any) -> Any:
    """A dataclass field that carries its `Setting`; `details` are the fields of `Setting`."""
    if "shape" not in details and isinstance(default, bool):
        details["shape"] = Shape.SWITCH
    if default is not None:
        details["kind"] = type(default)
    elif "parse" in details:
        details["kind"] = int
    details["optional"] = default is None
    metadata = {_METADATA_KEY: Setting(help=help, **details)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def declared(config_type: type) -> dict[str, Setting]:
    """The settings of a config dataclass by field name, in order of declaration."""
    fields = dataclasses.fields(config_type)
    return {field.name: field.metadata[_METADATA_KEY] for field in fields}


def from_environment(name: str, setting: Setting, environment: Mapping[str, str]) -> Any:
    """The value of the first variable that is set and not empty, or None."""
    for variable in setting.environment:
        if text := environment.get(variable):
            try:
                return setting.read(name, text)
            except ConfigError as error:
                raise ConfigError(f"environment variable {variable}: {error}") from error
    return None


def dashed(name: str) -> str:
    """A field's name as flags spell it."""
    return name.replace("_", "-")


def shown(value: Any) -> str:
    """A value as text, cut for messages."""
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def parse_json(text: str) -> Any:
    """The value that JSON stands for."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        why = f"{error.msg.lower()} at character {error.pos}"
        raise ConfigError(f"`{shown(text)}` is not JSON ({why})") from error
    except RecursionError as error:
        raise ConfigError(f"`{shown(text)}` is nested too deeply") from error
    except ValueError as error:
        raise ConfigError(f"`{shown(text)}` holds a number of too many digits") from error


def parse_switch(text: str) -> bool:
    """True or false from the words that files and environments use."""
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ConfigError(f"`{shown(text)}` is neither true nor false")


def parse_count(text: str) -> int:
    """An integer, with vLLM's suffixes: `1k` is 1000, `1K` is 1024, `25.6k` is 25600."""
    match = re.fullmatch(r"\s*(-?\d+)(\.\d+)?([kKmMgGtT]?)\s*", text)
    if match is None:
        raise ConfigError(f"`{shown(text)}` is not a whole number")
    if len(text) > _MOST_DIGITS:
        raise ConfigError(f"`{shown(text)}` has too many digits")
    whole, fraction, suffix = match.groups()
    if fraction is None:
        return int(whole) * _MULTIPLIERS.get(suffix, 1)
    if not suffix.islower():
        raise ConfigError(f"`{text}` is not a whole number; fractions go with k, m, g and t only")
    return int(float(whole + fraction) * _MULTIPLIERS[suffix])


def parse_count_or_auto(text: str) -> int | None:
    """As `parse_count`; None for `auto` and -1."""
    return None if text.strip().lower() in {"auto", "-1"} else parse_count(text)


def parse_seconds(text: str) -> float:
    """A number of seconds."""
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"`{shown(text)}` is not a number of seconds") from None


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `overlay` laid over it, object by object."""
    merged = dict(base)
    for key, value in overlay.items():
        below = merged.get(key)
        nested = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = merge(below, value) if nested else value  # type: ignore[arg-type]
    return merged


def _is_kind(value: Any, kind: type) -> bool:
    if kind is tuple:
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float if kind is float else kind)


def _problem_of_object(value: dict[str, Any]) -> str | None:
    """What keeps an object from going to the native half as JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        return f"`{shown(value)}` cannot be written as JSON ({error})"
    except RecursionError:
        return "the object is nested too deeply"
    if _has_surrogates(text):
        return "the object holds a lone surrogate, which no text can"
    return "the object is nested too deeply" if _depth(value) > _DEEPEST else None


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list | tuple):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _has_surrogates(text: str) -> bool:
    return re.search("[\ud800-\udfff]", text) is not None
