"""fastrender: OpenAI requests to token ids on a machine without a GPU, on vLLM's wire."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastrender._native import ChatTemplate, TemplateError
    from fastrender.derenderer import Derenderer
    from fastrender.errors import RequestError, SetupError
    from fastrender.renderer import RenderedRequest, Renderer

__all__ = [
    "ChatTemplate",
    "Derenderer",
    "RenderedRequest",
    "Renderer",
    "RequestError",
    "SetupError",
    "TemplateError",
]

_HOMES = {
    "ChatTemplate": "fastrender._native",
    "Derenderer": "fastrender.derenderer",
    "RenderedRequest": "fastrender.renderer",
    "Renderer": "fastrender.renderer",
    "RequestError": "fastrender.errors",
    "SetupError": "fastrender.errors",
    "TemplateError": "fastrender._native",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: the command line starts without the extension."""
    import importlib

    if name == "__version__":
        return importlib.import_module("fastrender.version").own_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'fastrender' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
