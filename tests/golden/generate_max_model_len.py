"""Write max_model_len.json: lengths and vocabulary sizes that vLLM's own code derives from configs.

Run it in the reference's environment (../shared/reference/install.sh), with the folder of vLLM
0.33's sources:

    PYTHONPATH=REFERENCE/site-0.33 REFERENCE/venv/bin/python tests/golden/generate_max_model_len.py
"""

import importlib.metadata
import json
import os
import pathlib
import tempfile
import types
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_ALLOW_LONG_MAX_MODEL_LEN="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_PLUGINS="",
)

import transformers
from vllm import config as _  # noqa: F401  (first, or the imports below go in a circle)
from vllm.config.model import ModelConfig, _get_and_verify_max_len
from vllm.transformers_utils.config import get_config, get_hf_text_config
from vllm.transformers_utils.model_arch_config_convertor import (
    MODEL_ARCH_CONFIG_CONVERTORS,
    ModelArchConfigConvertorBase,
)

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 4}
ROPES: dict[str, dict[str, Any]] = {
    "none": {},
    "default": {"rope_type": "default", "rope_theta": 1e4},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "linear_legacy": {"type": "linear", "factor": 2.5},
    "dynamic": {"type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
    "yarn_without_original": {"type": "yarn", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
LONG_FACTORS = [1.0] * 48


def cases() -> dict[str, dict[str, Any]]:
    """The configs by name, each with what the user gives beside it."""
    found: dict[str, dict[str, Any]] = {}

    def add(name: str, config: dict[str, Any], **user: Any) -> None:
        found[name] = {"config": config, **user}

    for name, rope in ROPES.items():
        add(
            f"rope_scaling_{name}",
            {**LLAMA, "max_position_embeddings": 32768, "rope_scaling": rope},
        )
        add(
            f"rope_parameters_{name}",
            {**LLAMA, "max_position_embeddings": 32768, "rope_parameters": rope},
        )
    add("null_rope", {**LLAMA, "max_position_embeddings": 4096, "rope_scaling": None})
    add("class_default", LLAMA)
    add("smallest_counts", {**LLAMA, "max_position_embeddings": 8192, "max_seq_len": 4096})
    add("seq_length", {**LLAMA, "max_position_embeddings": 8192, "seq_length": 2000})
    add("model_max_length", {**LLAMA, "max_position_embeddings": 8192, "model_max_length": 131072})
    add("float_length", {**LLAMA, "max_position_embeddings": 8192, "max_seq_len": 1000.7})
    for given in (1, 4096, 8192, 8193, 131072):
        add(f"given_{given}", {**LLAMA, "max_position_embeddings": 8192}, given=given)
    add(
        "given_beyond_scaled",
        {**LLAMA, "max_position_embeddings": 8192, "rope_scaling": ROPES["linear"]},
        given=40000,
    )
    add("gpt2", {"model_type": "gpt2", "n_positions": 2048})
    add("gpt2_alias", {"model_type": "gpt2", "max_position_embeddings": 3000})
    add("gpt2_default", {"model_type": "gpt2"})
    add("t5_has_none", {"model_type": "t5", "num_heads": 8})
    add("t5_given", {"model_type": "t5", "num_heads": 8}, given=777)
    add("opt", {"model_type": "opt", "max_position_embeddings": 2048})
    add("mpt", {"model_type": "mpt", "max_seq_len": 5000})
    add("bloom_has_none", {"model_type": "bloom"})
    add("mamba", {"model_type": "mamba"})
    add("whisper", {"model_type": "whisper", "max_target_positions": 448})
    for model_type in (
        "mistral",
        "mixtral",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "gemma2",
        "phi",
    ):
        add(f"{model_type}_default", {"model_type": model_type})
        add(f"{model_type}_length", {"model_type": model_type, "max_position_embeddings": 65536})
    for model_type in ("cohere", "cohere2", "granite", "olmo2", "falcon", "gpt_neox", "starcoder2"):
        add(f"{model_type}_default", {"model_type": model_type})
    for model_type in ("deepseek_v2", "deepseek_v3", "glm4", "glm4_moe", "gpt_oss", "nemotron_h"):
        add(f"{model_type}_default", {"model_type": model_type})
    for length in (4096, 131072):
        add(
            f"phi3_longrope_{length}",
            {
                "model_type": "phi3",
                "hidden_size": 3072,
                "max_position_embeddings": length,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {
                    "type": "longrope",
                    "long_factor": LONG_FACTORS,
                    "short_factor": LONG_FACTORS,
                },
            },
        )
    longrope = {"long_factor": LONG_FACTORS, "short_factor": LONG_FACTORS}
    phi3 = {"model_type": "phi3", "hidden_size": 3072, "max_position_embeddings": 131072}
    add(
        "phi3_longrope_given",
        {**phi3, "rope_scaling": {"type": "longrope", **longrope}},
        given=90000,
    )
    add(
        "llama_longrope",
        {
            **LLAMA,
            "max_position_embeddings": 65536,
            "rope_scaling": {"rope_type": "longrope", "factor": 8.0, **longrope},
        },
    )
    mrope = {"type": "mrope", "mrope_section": [16, 24, 24]}
    add(
        "qwen2_vl_flat",
        {"model_type": "qwen2_vl", "max_position_embeddings": 32768, "rope_scaling": mrope},
    )
    add(
        "qwen2_5_vl_nested",
        {
            "model_type": "qwen2_5_vl",
            "text_config": {"max_position_embeddings": 64000, "rope_scaling": mrope},
        },
    )
    add("qwen3_vl_default", {"model_type": "qwen3_vl"})
    add(
        "qwen3_vl_yarn",
        {
            "model_type": "qwen3_vl",
            "text_config": {
                "model_type": "qwen3_vl_text",
                "max_position_embeddings": 262144,
                "rope_scaling": {"rope_type": "yarn", "factor": 3.0, "mrope_section": [24, 20, 20]},
            },
        },
    )
    add("qwen3_5_default", {"model_type": "qwen3_5"})
    add("gemma3_without_length", {"model_type": "gemma3", "text_config": {"hidden_size": 2560}})
    add(
        "gemma3_linear",
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
        },
    )
    add("gemma3_text", {"model_type": "gemma3_text", "max_position_embeddings": 32768})
    add(
        "llava",
        {
            "model_type": "llava",
            "text_config": {"model_type": "llama", "max_position_embeddings": 4096},
        },
    )
    add(
        "llava_mistral",
        {"model_type": "llava_next", "text_config": {"model_type": "mistral", "vocab_size": 32064}},
    )
    add(
        "qwen2_5_omni",
        {
            "model_type": "qwen2_5_omni",
            "thinker_config": {"text_config": {"max_position_embeddings": 32768}},
        },
    )
    add("override_length", {**LLAMA}, overrides={"max_position_embeddings": 12345})
    add(
        "override_rope",
        {**LLAMA, "max_position_embeddings": 4096, "rope_scaling": ROPES["linear"]},
        overrides={"rope_parameters": {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 1e4}},
    )
    add(
        "override_nested",
        {"model_type": "qwen3_vl", "text_config": {"max_position_embeddings": 4096}},
        overrides={"text_config": {"max_position_embeddings": 5000}},
    )
    return found


def reference(case: dict[str, Any]) -> dict[str, Any]:
    """What vLLM makes of a case."""
    overrides = case.get("overrides", {})
    flat = {key: value for key, value in overrides.items() if not isinstance(value, dict)}
    nested = {key: value for key, value in overrides.items() if isinstance(value, dict)}
    folder = tempfile.mkdtemp()
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(case["config"]))
    config = get_config(folder, trust_remote_code=False, hf_overrides_kw=flat)
    # Only its helpers are called, which use nothing of an instance but each other.
    helper = object.__new__(ModelConfig)
    ModelConfig._apply_dict_overrides(helper, config, nested)
    text = get_hf_text_config(config)
    convertor = MODEL_ARCH_CONFIG_CONVERTORS.get(config.model_type, ModelArchConfigConvertorBase)
    converted = convertor(config, text)
    length = _get_and_verify_max_len(
        hf_config=text,
        model_arch_config=types.SimpleNamespace(
            derived_max_model_len_and_key=converted.derive_max_model_len_and_key()
        ),
        tokenizer_config=None,
        max_model_len=case.get("given"),
        disable_sliding_window=False,
        sliding_window=None,
    )
    return {"max_model_len": length, "vocab_size": converted.get_vocab_size() or None}


def main() -> None:
    """Ask the reference about every case and write its answers."""
    golden: dict[str, Any] = {}
    for name, case in cases().items():
        try:
            golden[name] = {**case, **reference(case)}
        except Exception as error:
            print(f"{name}: the reference refuses it: {error!r:.200}")
    output = pathlib.Path(__file__).with_name("max_model_len.json")
    source = f"vLLM {importlib.metadata.version('vllm')}, transformers {transformers.__version__}"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in golden.items())
    output.write_text(f'{{\n"source": {json.dumps(source)},\n"cases": {{\n{lines}\n}}\n}}\n')
    print(f"{output}: {len(golden)} cases")


if __name__ == "__main__":
    main()
