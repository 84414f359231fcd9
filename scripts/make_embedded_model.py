"""Make the model inside the package, python/fastrender/embedded, from the texts of embedded_corpus.

    python scripts/make_embedded_model.py        # needs tokenizers 0.23

The texts are written for this purpose or in the public domain. The same texts give the same files.
The chat template is written by hand and stays as it is.
"""

import json
import pathlib
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.processors import ByteLevel as ByteLevelProcessor
from tokenizers.trainers import BpeTrainer

CORPUS = pathlib.Path(__file__).with_name("embedded_corpus")
OUTPUT = pathlib.Path(__file__).parents[1] / "python/fastrender/embedded"
VOCABULARY_SIZE = 4_096
MAX_MODEL_LEN = 32_768

# transformers gives a Qwen tokenizer this pattern, whatever its tokenizer.json says.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# Parsers must see these, so they are not special: decoding keeps them.
VISIBLE_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


def train() -> Tokenizer:
    """A byte-level BPE tokenizer; added tokens get the ids behind the vocabulary."""
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(PIECES), behavior="isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.post_processor = ByteLevelProcessor(trim_offsets=False)
    trainer = BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        min_frequency=1,
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [path.read_text(encoding="utf-8") for path in sorted(CORPUS.glob("*.txt"))]
    tokenizer.train_from_iterator(texts, trainer)
    added = [AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS]
    added += [AddedToken(token, normalized=False, special=False) for token in VISIBLE_TOKENS]
    tokenizer.add_tokens(added)
    return tokenizer


def configs(tokenizer: Tokenizer) -> dict[str, dict[str, Any]]:
    """The JSON files beside tokenizer.json, by name."""
    ids = {token: tokenizer.token_to_id(token) for token in (*SPECIAL_TOKENS, *VISIBLE_TOKENS)}
    size = -(-tokenizer.get_vocab_size() // 64) * 64
    normalization = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "merge_size": 2,
        "patch_size": 16,
        "processor_class": "Qwen3VLProcessor",
        "resample": 3,
        "rescale_factor": 1 / 255,
        "temporal_patch_size": 2,
    }
    return {
        "config.json": {
            "architectures": ["Qwen3VLForConditionalGeneration"],
            "dtype": "bfloat16",
            "image_token_id": ids["<|image_pad|>"],
            "model_type": "qwen3_vl",
            "text_config": {
                "attention_bias": False,
                "attention_dropout": 0.0,
                "bos_token_id": ids["<|endoftext|>"],
                "dtype": "bfloat16",
                "eos_token_id": ids["<|im_end|>"],
                "head_dim": 32,
                "hidden_act": "silu",
                "hidden_size": 64,
                "initializer_range": 0.02,
                "intermediate_size": 128,
                "max_position_embeddings": MAX_MODEL_LEN,
                "model_type": "qwen3_vl_text",
                "num_attention_heads": 2,
                "num_hidden_layers": 2,
                "num_key_value_heads": 1,
                "rms_norm_eps": 1e-6,
                "rope_scaling": {
                    "mrope_interleaved": True,
                    "mrope_section": [6, 5, 5],
                    "rope_type": "default",
                },
                "rope_theta": 5_000_000,
                "use_cache": True,
                "vocab_size": size,
            },
            "tie_word_embeddings": True,
            "video_token_id": ids["<|video_pad|>"],
            "vision_config": {
                "deepstack_visual_indexes": [0],
                "depth": 2,
                "hidden_act": "gelu_pytorch_tanh",
                "hidden_size": 64,
                "in_channels": 3,
                "initializer_range": 0.02,
                "intermediate_size": 128,
                "model_type": "qwen3_vl",
                "num_heads": 2,
                "num_position_embeddings": 256,
                "out_hidden_size": 64,
                "patch_size": 16,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
            "vision_end_token_id": ids["<|vision_end|>"],
            "vision_start_token_id": ids["<|vision_start|>"],
        },
        "generation_config.json": {
            "bos_token_id": ids["<|endoftext|>"],
            "do_sample": True,
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "pad_token_id": ids["<|endoftext|>"],
            "temperature": 0.7,
            "top_k": 20,
            "top_p": 0.8,
        },
        "preprocessor_config.json": normalization
        | {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "size": {"longest_edge": 1_310_720, "shortest_edge": 4_096},
        },
        "tokenizer_config.json": {
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(number): {
                    "content": token,
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": token in SPECIAL_TOKENS,
                }
                for token, number in ids.items()
            },
            "additional_special_tokens": list(SPECIAL_TOKENS[1:]),
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": MAX_MODEL_LEN,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
        "video_preprocessor_config.json": normalization
        | {
            "do_sample_frames": True,
            "fps": 2,
            "max_frames": 768,
            "min_frames": 4,
            "size": {"longest_edge": 25_165_824, "shortest_edge": 4_096},
            "video_processor_type": "Qwen3VLVideoProcessor",
        },
    }


def main() -> None:
    """Train and write everything."""
    tokenizer = train()
    OUTPUT.mkdir(exist_ok=True)
    files = {"tokenizer.json": json.loads(tokenizer.to_str()), **configs(tokenizer)}
    for name, value in files.items():
        compact = name == "tokenizer.json"
        text = json.dumps(
            value,
            ensure_ascii=False,
            indent=None if compact else 2,
            separators=(",", ":") if compact else None,
        )
        (OUTPUT / name).write_text(text + "\n", encoding="utf-8")
    print(f"{OUTPUT}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
