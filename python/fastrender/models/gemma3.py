"""Gemma 3 with images."""

from fastrender.models.family import ModelFamily, register

FAMILY = register(
    ModelFamily(
        name="gemma3",
        architectures=("Gemma3ForConditionalGeneration",),
        media_placeholders={
            "image": "<start_of_image>",
        },
    )
)
