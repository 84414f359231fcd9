"""Qwen3-VL, dense and mixture of experts."""

from fastrender.models.family import ModelFamily, register

FAMILY = register(
    ModelFamily(
        name="qwen3_vl",
        architectures=("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
        media_placeholders={
            "image": "<|vision_start|><|image_pad|><|vision_end|>",
            "video": "<|vision_start|><|video_pad|><|vision_end|>",
        },
    )
)
