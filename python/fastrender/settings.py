"""What a declared setting is, and how its text is read, wherever it stands."""

import dataclasses
import enum
import json
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
    container: type = str

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
            if self.shape is Shape.JSON:
                value = json.loads(text)
                self.check(name, value)
                return value
            value = self.parse(text)
        except ValueError as error:
            raise ConfigError(f"{dashed(name)}: {reason(error, text)}") from error
        return (value,) if self.shape in (Shape.LIST, Shape.REPEATED) else value

    def check(self, name: str, value: Any) -> None:
        """Refuse a value of the wrong kind, or outside of the setting's choices or bounds."""
        if value is None:
            return
        if self.container is tuple and not is_words(value):
            raise ConfigError(f"{dashed(name)}: a list of strings is needed, not `{value}`")
        if self.container is dict and not isinstance(value, dict):
            raise ConfigError(f"{dashed(name)}: a JSON object is needed, not `{value}`")
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            raise ConfigError(f"{dashed(name)}: unknown value `{value}`; known: {known}")
        if self.least is not None and value < self.least:
            raise ConfigError(f"{dashed(name)}: `{value}` is less than {self.least}")
        if self.most is not None and value > self.most:
            raise ConfigError(f"{dashed(name)}: `{value}` is more than {self.most}")


def setting(default: Any, help: str, **details: Any) -> Any:
    """A dataclass field that carries its `Setting`; `details` are the fields of `Setting`."""
    if "shape" not in details and isinstance(default, bool):
        details["shape"] = Shape.SWITCH
    if isinstance(default, dict | tuple):
        details["container"] = type(default)
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


def reason(error: ValueError, text: str) -> str:
    """Why `text` was not understood, as part of a sentence."""
    if isinstance(error, json.JSONDecodeError):
        return f"`{text}` is not JSON ({error.msg.lower()} at character {error.pos})"
    return str(error)


def is_words(value: Any) -> bool:
    """Whether `value` is a list or tuple of strings."""
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def parse_switch(text: str) -> bool:
    """True or false from the words that files and environments use."""
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ConfigError(f"`{text}` is neither true nor false")


def parse_count(text: str) -> int:
    """An integer, with vLLM's suffixes: `1k` is 1000, `1K` is 1024, `25.6k` is 25600."""
    match = re.fullmatch(r"\s*(-?\d+)(\.\d+)?([kKmMgGtT]?)\s*", text)
    if match is None:
        raise ConfigError(f"`{text}` is not a whole number")
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
        raise ConfigError(f"`{text}` is not a number of seconds") from None


def merge(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `overlay` laid over it, object by object."""
    merged = dict(base)
    for key, value in overlay.items():
        below = merged.get(key)
        nested = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = merge(below, value) if nested else value  # type: ignore[arg-type]
    return merged
