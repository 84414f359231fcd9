"""fastrender: OpenAI requests to token ids and multimodal tensors, without a GPU."""

from fastrender._native import ChatTemplate

__all__ = ["ChatTemplate"]
