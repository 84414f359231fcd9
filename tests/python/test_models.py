import pytest

from fastrender import models
from fastrender.models import ModelFamily

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


@pytest.mark.parametrize(
    ("architecture", "name", "placeholders"),
    [
        ("Qwen2VLForConditionalGeneration", "qwen2_vl", {"image": IMAGE, "video": VIDEO}),
        ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", {"image": IMAGE, "video": VIDEO}),
        ("Qwen3VLForConditionalGeneration", "qwen3_vl", {"image": IMAGE, "video": VIDEO}),
        ("Qwen3VLMoeForConditionalGeneration", "qwen3_vl", {"image": IMAGE, "video": VIDEO}),
        ("Qwen3_5ForConditionalGeneration", "qwen3_5", {"image": IMAGE, "video": VIDEO}),
        ("Qwen3_5MoeForConditionalGeneration", "qwen3_5", {"image": IMAGE, "video": VIDEO}),
        ("Gemma3ForConditionalGeneration", "gemma3", {"image": "<start_of_image>"}),
    ],
)
def test_a_family_is_found_by_its_architecture(
    architecture: str, name: str, placeholders: dict[str, str]
) -> None:
    family = models.resolve(["Unknown", architecture])
    assert family is not None
    assert (family.name, family.media_placeholders) == (name, placeholders)


@pytest.mark.parametrize(
    "architectures", [[], ["LlamaForCausalLM"], ["qwen3vlforconditionalgeneration"], [""]]
)
def test_any_other_model_has_no_family(architectures: list[str]) -> None:
    assert models.resolve(architectures) is None


def test_an_architecture_has_one_family() -> None:
    rival = ModelFamily(
        name="rival", architectures=("Qwen2VLForConditionalGeneration",), media_placeholders={}
    )
    models.resolve([])
    with pytest.raises(ValueError, match="is of the family `qwen2_vl`; `rival` cannot have it"):
        models.register(rival)
