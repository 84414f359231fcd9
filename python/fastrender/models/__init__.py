"""Model families: what rendering needs to know of a model beyond its folder.

A family is one file here, matched exactly on `architectures` of config.json. A model of no family
is a text model.
"""

from fastrender.models.family import ModelFamily, register, resolve

__all__ = ["ModelFamily", "register", "resolve"]
