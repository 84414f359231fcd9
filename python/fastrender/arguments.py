"""A command line, and the file that `--config` names, to a `RenderConfig`.

Flags are spelled with dashes or underscores, with `=` or a space; objects are JSON or dotted
(`--override-generation-config.temperature 0.5`); what is given later wins, the command line wins
over the file, and the file over the environment.
"""

import argparse
import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from fastrender import foreign_flags
from fastrender.config import RenderConfig
from fastrender.foreign_flags import Arity
from fastrender.settings import (
    ConfigError,
    Setting,
    Shape,
    declared,
    merge,
    parse_count,
    parse_json,
    parse_switch,
    shown,
)

_SCALE_OUT_VARIABLE = "VLLM_ENABLE_SCALE_OUT_ENDPOINTS"


@dataclasses.dataclass(frozen=True, slots=True)
class CommandLine:
    """What a command line says: the config, warnings to print, and options of the command's own."""

    config: RenderConfig
    warnings: list[str]
    options: argparse.Namespace


def parse(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    command: str,
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> CommandLine:
    """Read `arguments`, those of `fastrender COMMAND`; `ConfigError` says what is wrong."""
    parser = _build_parser(command)
    if add_options is not None:
        add_options(parser)
    words, config_file = _take_config_file(arguments)
    given, options, warnings = _read_words(words, parser)
    if config_file is not None:
        from_file, warnings_of_file = _read_file(config_file, command)
        given = {**from_file, **given}
        warnings = warnings_of_file + warnings
    config = RenderConfig.resolve(given, environment)
    if not config.generates:
        _refuse_hidden_routes(environment)
    return CommandLine(config, warnings, options)


def _read_file(path: str, command: str) -> tuple[dict[str, Any], list[str]]:
    """The settings that the YAML file at `path` gives, and warnings."""
    from fastrender.config_file import words_of_file

    words = list(words_of_file(path))
    try:
        given, _, warnings = _read_words(words, _build_parser(command))
    except ConfigError as error:
        raise ConfigError(f"`{path}`: {error}") from error
    return given, warnings


def _read_words(
    words: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[dict[str, Any], argparse.Namespace, list[str]]:
    """The settings that `words` give, the options that are no settings, and warnings."""
    plain, dotted, warnings = _separate(words)
    options, unknown = parser.parse_known_args(plain)
    for word in unknown:
        _refuse(word, parser)
    given = {
        name: _read(name, declaration, value)
        for name, declaration in declared(RenderConfig).items()
        if (value := vars(options).pop(name)) is not None
    }
    for name, value in dotted.items():
        given[name] = merge(given.get(name, {}), value)
    if (model := vars(options).pop("positional_model")) is not None:
        given["model"] = model
    return given, options, warnings


class _Parser(argparse.ArgumentParser):
    """argparse, with errors as exceptions."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise ConfigError(message)


def _build_parser(command: str) -> _Parser:
    parser = _Parser(prog=f"fastrender {command}", allow_abbrev=False)
    parser.add_argument(
        "positional_model",
        metavar="MODEL",
        nargs="?",
        help="The same as --model, and wins over it.",
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings, keyed as flags.")
    for name, declaration in declared(RenderConfig).items():
        described = _describe(name, declaration)
        on = declaration.on_spellings(name)
        if declaration.shape is Shape.SWITCH:
            parser.add_argument(*on, dest=name, action="store_const", const=True, help=described)
            off = declaration.off_spellings(name)
            parser.add_argument(
                *off,
                dest=name,
                action="store_const",
                const=False,
                help=argparse.SUPPRESS,
            )
        elif declaration.shape is Shape.LIST:
            parser.add_argument(*on, dest=name, nargs="+", metavar="VALUE", help=described)
        elif declaration.shape is Shape.REPEATED:
            parser.add_argument(*on, dest=name, action="append", metavar="VALUE", help=described)
        else:
            metavar = "JSON" if declaration.shape is Shape.JSON else "VALUE"
            parser.add_argument(*on, dest=name, metavar=metavar, help=described)
    return parser


def _describe(name: str, declaration: Setting) -> str:
    notes = []
    default = next(f for f in dataclasses.fields(RenderConfig) if f.name == name).default
    if default not in (None, (), "", False, dataclasses.MISSING):
        notes.append(f"default: {default}")
    if declaration.choices:
        notes.append(f"one of: {', '.join(declaration.choices)}")
    if declaration.environment:
        notes.append(f"environment: {', '.join(declaration.environment)}")
    text = f"{declaration.help} ({'; '.join(notes)})" if notes else declaration.help
    return text.replace("%", "%%")


def _read(name: str, declaration: Setting, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(item for word in value for item in declaration.read(name, word))
    return value if isinstance(value, bool) else declaration.read(name, value)


def _separate(
    words: Sequence[str],
) -> tuple[list[str], dict[str, dict[str, Any]], list[str]]:
    """Words for argparse, objects that were spelled with dots, and warnings about vLLM's flags."""
    switches = _switches()
    objects = {
        spelling: name
        for name, declaration in declared(RenderConfig).items()
        if declaration.shape is Shape.JSON
        for spelling in declaration.on_spellings(name)
    }
    plain: list[str] = []
    dotted: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if re.match(r"-O[=\w]", word):
            warnings.append("-O has no effect on a renderer")
            continue
        if not re.match(r"--?[a-zA-Z]", word):
            plain.append(word)
            continue
        flag, value = _split_flag(word)
        base, dot, path = flag.partition(".")
        if foreign_flags.arity_of(base) is not None:
            arity = Arity.ONE if dot else foreign_flags.arity_of(base)
            if value is None:
                _skip_values(base, arity, rest)
            warnings.append(foreign_flags.warning(base))
        elif dot and base in objects:
            if value is None:
                if not rest:
                    raise ConfigError(f"{flag}: a value is missing")
                value = rest.pop()
            nested = _nested(path, value)
            dotted[objects[base]] = merge(dotted.get(objects[base], {}), nested)
        elif value is not None and flag in switches:
            on, off = switches[flag]
            try:
                plain.append(on if parse_switch(value) else off)
            except ConfigError as error:
                raise ConfigError(f"{flag.removeprefix('--')}: {error}") from error
        else:
            plain.append(flag if value is None else f"{flag}={value}")
    return plain, dotted, warnings


def _switches() -> dict[str, tuple[str, str]]:
    """For each spelling of a switch, the spellings that `=true` and `=false` after it mean."""
    switches = {}
    for name, declaration in declared(RenderConfig).items():
        if declaration.shape is Shape.SWITCH:
            on, off = declaration.on_spellings(name), declaration.off_spellings(name)
            switches.update(dict.fromkeys(on, (on[0], off[0])))
            switches.update(dict.fromkeys(off, (off[0], on[0])))
    return switches


def _split_flag(word: str) -> tuple[str, str | None]:
    """A flag with dashes for underscores up to its first dot, and the value after `=`."""
    flag, equals, value = word.partition("=")
    base, dot, path = flag.partition(".")
    return base.replace("_", "-") + dot + path, value if equals else None


def _skip_values(flag: str, arity: Arity | None, rest: list[str]) -> None:
    """Take the values of a flag of vLLM's from the words that are left (last is next)."""
    if arity is Arity.ONE:
        if not rest:
            raise ConfigError(f"{flag}: a value is missing")
        rest.pop()
    while arity is Arity.MANY and rest and not rest[-1].startswith("-"):
        rest.pop()


def _nested(path: str, text: str) -> dict[str, Any]:
    """`a.b` and `1` as `{"a": {"b": 1}}`; `a+` takes a list separated by commas."""
    value: Any = text
    if path.endswith("+"):
        path, value = path[:-1], text.split(",")
    else:
        with contextlib.suppress(ConfigError):
            value = parse_count(text)
        with contextlib.suppress(ConfigError):
            value = parse_json(text)
    keys = path.split(".")
    if "" in keys:
        raise ConfigError(f"`.{shown(path)}`: a name is missing beside a dot")
    for key in reversed(keys):
        value = {key: value}
    return dict(value)


def _refuse(word: str, parser: argparse.ArgumentParser) -> NoReturn:
    """Refuse a word that no flag takes, with the nearest flag's name."""
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        raise ConfigError(f"unexpected argument `{word}`")
    import difflib

    known = [spelling for action in parser._actions for spelling in action.option_strings]
    known += foreign_flags.known_flags()
    near = difflib.get_close_matches(flag.partition(".")[0], known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"unknown flag `{flag}`{hint}")


def _refuse_hidden_routes(environment: Mapping[str, str]) -> None:
    """Older vLLM hides a renderer's routes on this variable; a renderer without them is none."""
    value = environment.get(_SCALE_OUT_VARIABLE)
    try:
        hidden = bool(value) and not parse_switch(value or "")
    except ConfigError as error:
        raise ConfigError(f"environment variable {_SCALE_OUT_VARIABLE}: {error}") from error
    if hidden:
        raise ConfigError(
            f"{_SCALE_OUT_VARIABLE}={value} turns off the only routes that a renderer has; "
            "unset it or set it to 1"
        )


def _take_config_file(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The arguments without `--config` and its value, and the value."""
    rest: list[str] = []
    path = None
    words = iter(arguments)
    for word in words:
        flag, value = _split_flag(word)
        if flag != "--config":
            rest.append(word)
            continue
        if path is not None:
            raise ConfigError("--config is given twice")
        path = value if value is not None else next(words, None)
        if path is None:
            raise ConfigError("--config: a file name is missing")
    return rest, path
