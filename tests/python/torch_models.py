"""Small random models for the torch engine, and what transformers itself makes of them."""

import asyncio
import base64
import functools
import io
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import pytest
from PIL import Image

from fastrender.config import RenderConfig
from fastrender.renderer import Renderer
from folders import EMBEDDED, write_folder

pytest.importorskip("torch", reason="the torch engine needs torch (fastrender[torch])")
pytest.importorskip("transformers", reason="the torch engine needs transformers")

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from fastrender.engine.local import sampling, store, transfer
from fastrender.engine.local.embedded import weighted_folder
from fastrender.engine.local.engine import TorchEngine
from fastrender.engine.local.params import SamplingParams
from fastrender.engine.local.sequence import Job, Output
from fastrender.engine.local.vision import Embedding

# Tests take what needs torch from here, after the check that it is there.
__all__ = [
    "AutoConfig",
    "AutoModelForImageTextToText",
    "Embedding",
    "Job",
    "Output",
    "SamplingParams",
    "TorchEngine",
    "sampling",
    "store",
    "torch",
    "transfer",
]

# Threads only slow down what is this small.
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()

VOCABULARY = 4_160
_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4_096,
    "bos_token_id": 4_096,
    "eos_token_id": 4_098,
    "pad_token_id": 4_096,
    "tie_word_embeddings": False,
    # Large, so that likeliest tokens are far from the second likeliest.
    "initializer_range": 0.4,
}
_VISION = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "initializer_range": 0.2,
}
_MROPE = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
_TOKENS = {
    "image_token_id": 4_101,
    "video_token_id": 4_102,
    "vision_start_token_id": 4_099,
    "vision_end_token_id": 4_100,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_TEXT, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    # Every layer forgets what is further back than this.
    "mistral": {
        **_TEXT,
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": 8,
    },
    # Layers that forget, and others that do not.
    "gemma3": {
        **_TEXT,
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "query_pre_attn_scalar": 16,
    },
    "qwen3_vl": {
        **_TOKENS,
        "model_type": "qwen3_vl",
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "tie_word_embeddings": False,
        "text_config": {
            **_TEXT,
            "model_type": "qwen3_vl_text",
            "rope_parameters": {**_MROPE, "mrope_interleaved": True},
        },
        "vision_config": {
            **_VISION,
            "model_type": "qwen3_vl",
            "out_hidden_size": 32,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 2],
        },
    },
    "qwen2_5_vl": {
        **_TOKENS,
        "model_type": "qwen2_5_vl",
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        # Whose heads are always as wide as they make the hidden size.
        "text_config": {
            **_TEXT,
            "model_type": "qwen2_5_vl_text",
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_parameters": _MROPE,
        },
        "vision_config": {
            **_VISION,
            "model_type": "qwen2_5_vl",
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
            "window_size": 64,
            "tokens_per_second": 2,
        },
    },
}
PICTURES = ("qwen3_vl", "qwen2_5_vl", "tiny")


@functools.cache
def folder(name: str, base: pathlib.Path) -> str:
    """A model folder of that kind below `base`; the embedded model for `tiny`."""
    if name == "tiny":
        return "fastrender/tiny"
    config = CONFIGS[name]
    target = base / name
    files: dict[str, Any] = {"config.json": config}
    for file in ("tokenizer_config.json", "chat_template.jinja", "preprocessor_config.json"):
        files[file] = (EMBEDDED / file).read_text(encoding="utf-8")
    files["generation_config.json"] = {"eos_token_id": 4_098, "pad_token_id": 4_096}
    write_folder(target, files)
    made = AutoConfig.from_pretrained(target)
    torch.manual_seed(3)
    kind: Any = AutoModelForImageTextToText if name in PICTURES else AutoModelForCausalLM
    model = kind.from_config(made, dtype=torch.float32)
    model.save_pretrained(target, safe_serialization=True)
    # transformers writes a config of its own; the tests' one is what was meant.
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


@functools.cache
def renderer(model: str) -> Renderer:
    return Renderer(model)


def engine(model: str, **settings: Any) -> TorchEngine:
    """A loaded engine; to be closed."""
    config = RenderConfig(engine=("torch",), model=model, **settings)
    loaded = TorchEngine(config, renderer(model))
    loaded.load()
    return loaded


@functools.cache
def reference(model: str) -> Any:
    """transformers' own model of the same weights."""
    path = weighted_folder(EMBEDDED) if model == "fastrender/tiny" else pathlib.Path(model)
    config = AutoConfig.from_pretrained(path)
    has_images = hasattr(config, "vision_config")
    kind: Any = AutoModelForImageTextToText if has_images else AutoModelForCausalLM
    return kind.from_pretrained(path, dtype=torch.float32).eval()


def generated(model: str, ids: Sequence[int], count: int, **options: Any) -> list[int]:
    """What transformers' `generate` adds to `ids`, greedily, past any end token."""
    prompt = torch.tensor([list(ids)])
    made = reference(model).generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=count,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        eos_token_id=None,
        pad_token_id=0,
        **options,
    )
    tokens: list[int] = made[0, len(ids) :].tolist()
    return tokens


def body(ids: Sequence[int], **params: Any) -> dict[str, Any]:
    """A greedy request that goes on to its end."""
    return {
        "token_ids": list(ids),
        "sampling_params": {"temperature": 0, "ignore_eos": True, "max_tokens": 8, **params},
    }


async def post(engine: TorchEngine, request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(await engine.generate(json.dumps(request).encode()))
    return answer


def answers(engine: TorchEngine, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to requests that are all there at once."""

    async def run() -> list[dict[str, Any]]:
        return await asyncio.gather(*(post(engine, request) for request in requests))

    return asyncio.run(run())


def tokens(answer: dict[str, Any], choice: int = 0) -> list[int]:
    ids: list[int] = answer["choices"][choice]["token_ids"]
    return ids


def prompt(length: int, seed: int = 0) -> list[int]:
    """Ids of ordinary tokens."""
    generator = torch.Generator().manual_seed(seed * 1_000 + length)
    ids: list[int] = torch.randint(0, 4_096, (length,), generator=generator).tolist()
    return ids


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """An image of noise over a slope."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 90, (height, width, 3), generator=generator)
    slope = torch.arange(width)[None, :, None] * 160 // width
    return Image.fromarray((noise + slope).to(torch.uint8).numpy())


def image_url(image: Image.Image) -> str:
    data = io.BytesIO()
    image.save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


def rendered(
    model: str, images: Sequence[Image.Image], text: str = "What is it?"
) -> dict[str, Any]:
    """A chat request with images, as a generate request."""
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": image_url(image)}} for image in images
    ]
    parts.append({"type": "text", "text": text})
    chat = {"messages": [{"role": "user", "content": parts}]}
    return dict(renderer(model).render_chat(chat))


def pixels(model: str, images: Sequence[Image.Image]) -> dict[str, Any]:
    """What transformers' image processor makes of the images."""
    from transformers import AutoImageProcessor

    path = weighted_folder(EMBEDDED) if model == "fastrender/tiny" else pathlib.Path(model)
    processor = AutoImageProcessor.from_pretrained(path)
    return dict(processor(list(images), return_tensors="pt"))


def generated_with(model: str, ids: Sequence[int], images: Sequence[Image.Image]) -> list[int]:
    """As `generated`, with images."""
    kinds = (torch.tensor([list(ids)]) == _TOKENS["image_token_id"]).int()
    made = pixels(model, images)
    return generated(
        model,
        ids,
        8,
        mm_token_type_ids=kinds,
        pixel_values=made["pixel_values"],
        image_grid_thw=made["image_grid_thw"],
    )
