"""Qwen2.5-VL."""

from fastrender.models.family import ImageFamily, ModelFamily, PartialBounds, register

FAMILY = register(
    ModelFamily(
        name="qwen2_5_vl",
        architectures=("Qwen2_5_VLForConditionalGeneration",),
        media_placeholders={
            "image": "<|vision_start|><|image_pad|><|vision_end|>",
            "video": "<|vision_start|><|video_pad|><|vision_end|>",
        },
        image=ImageFamily(
            placeholder="<|image_pad|>",
            size_rule="smart",
            filter="bicubic",
            flavour="aten",
            layout="qwen_patches",
            pixels_field="pixel_values",
            grid_field="image_grid_thw",
            # transformers' `Qwen2VLImageProcessor`.
            patch_size=14,
            merge_size=2,
            temporal_patch_size=2,
            min_pixels=3_136,
            max_pixels=1_003_520,
            mean=(0.48145466, 0.4578275, 0.40821073),
            std=(0.26862954, 0.26130258, 0.27577711),
            device_normalize=True,
            partial_bounds=PartialBounds.BOTH_OR_NONE,
        ),
    )
)
