"""fastrender: OpenAI requests to token ids and multimodal tensors, without a GPU."""
