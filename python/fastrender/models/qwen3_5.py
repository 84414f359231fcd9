"""Qwen3.5, dense and mixture of experts."""

from fastrender.models.family import ModelFamily, register

FAMILY = register(
    ModelFamily(
        name="qwen3_5",
        architectures=("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
        media_placeholders={
            "image": "<|vision_start|><|image_pad|><|vision_end|>",
            "video": "<|vision_start|><|video_pad|><|vision_end|>",
        },
    )
)
