"""Qwen2.5-VL."""

from fastrender.models.family import ModelFamily, register

FAMILY = register(
    ModelFamily(
        name="qwen2_5_vl",
        architectures=("Qwen2_5_VLForConditionalGeneration",),
        media_placeholders={
            "image": "<|vision_start|><|image_pad|><|vision_end|>",
            "video": "<|vision_start|><|video_pad|><|vision_end|>",
        },
    )
)
