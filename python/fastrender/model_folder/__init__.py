"""What a model folder or hub id means: limits, special tokens, templates, family.

Reads no tokenizer.json: its bytes are handed to the native half as they are.
"""

from fastrender.model_folder.files import ModelFolderError
from fastrender.model_folder.folder import ModelFolder, load
from fastrender.model_folder.spec import AddedTokenSpec, ModelSpec, TokenizerSpec

__all__ = [
    "AddedTokenSpec",
    "ModelFolder",
    "ModelFolderError",
    "ModelSpec",
    "TokenizerSpec",
    "load",
]
