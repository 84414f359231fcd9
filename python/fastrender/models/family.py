"""`ModelFamily`, and the table of all of them."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterable, Mapping

_families: dict[str, "ModelFamily"] = {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """Models that render alike.

    `media_placeholders` is the text that stands for one medium, by modality, where a template takes
    content as one string; `{i}` in it is the medium's number from 1. A modality that is not there
    is not served.
    """

    name: str
    architectures: tuple[str, ...]
    media_placeholders: Mapping[str, str]


def register(family: ModelFamily) -> ModelFamily:
    """Make a family known under its architectures, and return it."""
    for architecture in family.architectures:
        known = _families.setdefault(architecture, family)
        if known != family:
            raise ValueError(
                f"`{architecture}` is of the family `{known.name}`; `{family.name}` cannot have it"
            )
    return family


def resolve(architectures: Iterable[str]) -> ModelFamily | None:
    """The family of the first architecture that has one."""
    _import_families()
    return next((_families[name] for name in architectures if name in _families), None)


def _import_families() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
