"""Reading a model folder's files; what is wrong with one is said in a sentence that names it."""

import dataclasses
import errno
import fnmatch
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

_LARGEST_COUNT = 2**63 - 1
_LARGEST_NUMBER = 1e300
_NAMES = {bool: "true or false", int: "a whole number", str: "a string", dict: "an object"}


class ModelFolderError(ValueError):
    """A model folder that cannot be used; the message is one sentence for who named it."""


@dataclasses.dataclass(frozen=True, slots=True)
class JsonObject:
    """An object of one of the folder's JSON files; its fields are read with their types checked."""

    file: str
    values: Mapping[str, Any]

    def text(self, key: str) -> str | None:
        """A string field, or None if it is absent or null."""
        value: str | None = self._field(key, str)
        return value

    def flag(self, key: str) -> bool | None:
        """A boolean field, or None if it is absent or null."""
        value: bool | None = self._field(key, bool)
        return value

    def count(self, key: str) -> int | None:
        """A field that holds a whole number, or None if it is absent or null."""
        value: int | None = self._field(key, int)
        if value is not None and abs(value) > _LARGEST_COUNT:
            raise self.wrong(key, f"a whole number of at most {_LARGEST_COUNT}")
        return value

    def number(self, key: str) -> float | None:
        """A field that holds a finite number, or None if it is absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "a number")
        if not abs(value) <= _LARGEST_NUMBER:
            raise self.wrong(key, "a finite number")
        return value

    def child(self, key: str) -> "JsonObject | None":
        """An object within this one, or None if it is absent or null."""
        value: dict[str, Any] | None = self._field(key, dict)
        return None if value is None else JsonObject(self.file, value)

    def wrong(self, key: str, wanted: str) -> ModelFolderError:
        """The error of a field that is not what it must be."""
        return ModelFolderError(
            f"{self.file}: `{key}` must be {wanted}, not `{short(self.values[key])}`"
        )

    def _field(self, key: str, kind: type) -> Any:
        value = self.values.get(key)
        # True is an int to Python, but no whole number to anybody else.
        if value is not None and (
            not isinstance(value, kind) or (kind is int and isinstance(value, bool))
        ):
            raise self.wrong(key, _NAMES[kind])
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class FolderFiles:
    """The files of a folder; `name` is what the user called it, for messages.

    `names_at_source` lists a folder of the hub, of which only some files are on the disk.
    """

    name: str
    path: pathlib.Path
    names_at_source: Callable[[], list[str]] | None = None

    def has(self, file: str) -> bool:
        """Whether the folder holds `file`."""
        return (self.path / file).is_file()

    def matching(self, pattern: str, folder: str = ".") -> list[str]:
        """Names of the files in (a folder of) the folder that match a pattern, in order."""
        return sorted(fnmatch.filter(self._names(folder), pattern))

    def all_names(self) -> list[str]:
        """Names of all files, those included that were not fetched from the hub."""
        names = self.names_at_source() if self.names_at_source is not None else []
        return sorted({*names, *self._names(".")})

    def bytes(self, file: str) -> bytes | None:
        """The content of a file, or None if the folder has none of that name."""
        try:
            return read_bytes(self.path / file)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ModelFolderError(f"cannot read {file} of `{self.name}`: {why}") from error

    def text(self, file: str) -> str | None:
        """The content of a UTF-8 file, or None if the folder has none of that name."""
        content = self.bytes(file)
        if content is None:
            return None
        try:
            # As Python's text files read: \r\n becomes \n.
            return content.decode().replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise ModelFolderError(
                f"{file} of `{self.name}` is not UTF-8 (byte {error.start})"
            ) from error

    def json(self, file: str) -> JsonObject | None:
        """The object that a JSON file holds, or None if the folder has none of that name."""
        content = self.bytes(file)
        if content is None:
            return None
        try:
            value = json.loads(content)
        except UnicodeDecodeError as error:
            raise ModelFolderError(
                f"{file} of `{self.name}` is not UTF-8 (byte {error.start})"
            ) from error
        except json.JSONDecodeError as error:
            raise ModelFolderError(
                f"{file} of `{self.name}` is not JSON: {error.msg.lower()} "
                f"(line {error.lineno}, column {error.colno})"
            ) from error
        except RecursionError as error:
            raise ModelFolderError(f"{file} of `{self.name}` is nested too deeply") from error
        except ValueError as error:
            raise ModelFolderError(
                f"{file} of `{self.name}` holds a number of too many digits"
            ) from error
        if not isinstance(value, dict):
            raise ModelFolderError(
                f"{file} of `{self.name}` must hold a JSON object, not `{short(value)}`"
            )
        return JsonObject(file, value)

    def _names(self, folder: str) -> list[str]:
        place = self.path / folder
        if not place.is_dir():
            return []
        return [entry.name for entry in place.iterdir() if entry.is_file()]


def read_bytes(path: pathlib.Path) -> bytes:
    """The content of a file; `OSError` for what would never end, such as a pipe."""
    if not (path.is_file() or path.is_dir()) and path.exists():
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.read_bytes()


def short(value: Any) -> str:
    """A value as JSON, cut for messages."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
