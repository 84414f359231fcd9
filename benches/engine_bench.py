"""The torch engine against transformers' `generate`: tokens a second, and time to first token.

    python benches/engine_bench.py [--model FOLDER] [--device cuda] [--requests 1 8 32]
    python benches/engine_bench.py --make-model 8b-shaped --device cuda

`generate` runs the same prompts one after another, and, as one padded batch, side by side. Greedy;
every request goes on to its last token. Results are printed as JSON lines.
"""

import argparse
import asyncio
import json
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from fastrender.config import EMBEDDED_MODEL, RenderConfig
from fastrender.engine.local.embedded import weighted_folder
from fastrender.engine.local.engine import TorchEngine
from fastrender.renderer import Renderer

_EMBEDDED = pathlib.Path(__file__).parents[1] / "python" / "fastrender" / "embedded"
# Random weights: times do not depend on them.
_SHAPES: dict[str, dict[str, int]] = {
    "1b-shaped": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 16},
    "8b-shaped": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36},
}


def made_model(shape: str) -> str:
    """A folder with a random Qwen3 of that shape."""
    folder = pathlib.Path(tempfile.mkdtemp()) / shape
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((_EMBEDDED / name).read_bytes())
    config = {
        **_SHAPES[shape],
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 32_768,
        "max_position_embeddings": 8_192,
        "dtype": "bfloat16",
        "eos_token_id": 4_098,
    }
    (folder / "config.json").write_text(json.dumps(config))
    made = AutoConfig.from_pretrained(folder)
    AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16).save_pretrained(folder / "saved")
    for file in (folder / "saved").glob("model*"):
        file.rename(folder / file.name)
    return str(folder)


def prompts(count: int, length: int) -> list[list[int]]:
    """Prompts of about that length, each another."""
    generator = torch.Generator().manual_seed(count)
    lengths = [max(1, length - 7 * (i % 5)) for i in range(count)]
    return [torch.randint(0, 4_096, (n,), generator=generator).tolist() for n in lengths]


async def one(engine: TorchEngine, ids: Sequence[int], count: int) -> tuple[list[int], float]:
    """The tokens of a streamed request, and the seconds until the first."""
    params = {"temperature": 0, "ignore_eos": True, "max_tokens": count}
    body = json.dumps({"token_ids": list(ids), "sampling_params": params}).encode()
    started = time.perf_counter()
    first = 0.0
    tokens: list[int] = []
    async for chunk in engine.stream(body):
        first = first or time.perf_counter() - started
        tokens += json.loads(chunk)["choices"][0]["token_ids"]
    return tokens, first


def with_engine(
    engine: TorchEngine, asked: Sequence[Sequence[int]], count: int, *, together: bool
) -> tuple[list[list[int]], float, list[float]]:
    """Tokens, seconds, and seconds to first tokens."""

    async def run() -> list[tuple[list[int], float]]:
        if together:
            return list(await asyncio.gather(*(one(engine, ids, count) for ids in asked)))
        return [await one(engine, ids, count) for ids in asked]

    started = time.perf_counter()
    made = asyncio.run(run())
    return [ids for ids, _ in made], time.perf_counter() - started, [first for _, first in made]


class Reference:
    """transformers' `generate`."""

    def __init__(self, folder: pathlib.Path, device: torch.device, dtype: torch.dtype) -> None:
        config = AutoConfig.from_pretrained(folder)
        has_images = hasattr(config, "vision_config")
        kind: Any = AutoModelForImageTextToText if has_images else AutoModelForCausalLM
        self._model = kind.from_pretrained(folder, dtype=dtype).to(device).eval()
        self._device = device

    def generate(self, asked: Sequence[Sequence[int]], count: int) -> tuple[list[list[int]], float]:
        """Tokens and seconds, as one batch with padding in front."""
        longest = max(map(len, asked))
        ids = torch.tensor([[0] * (longest - len(p)) + list(p) for p in asked])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in asked])
        started = time.perf_counter()
        with torch.inference_mode():
            made = self._model.generate(
                ids.to(self._device),
                attention_mask=mask.to(self._device),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                eos_token_id=None,
                pad_token_id=0,
            )
        tokens: list[list[int]] = made[:, longest:].tolist()
        return tokens, time.perf_counter() - started


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=EMBEDDED_MODEL)
    parser.add_argument("--make-model", choices=_SHAPES)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()

    model = made_model(options.make_model) if options.make_model else options.model
    config = RenderConfig(
        model=model,
        engine=("torch",),
        device=options.device,
        dtype=options.dtype,
        max_num_seqs=max(options.requests),
    )
    renderer = Renderer.from_config(config)
    engine = TorchEngine(config, renderer)
    engine.load()
    loaded = engine.model
    assert loaded is not None
    folder = weighted_folder(_EMBEDDED) if model == EMBEDDED_MODEL else renderer.folder.path
    reference = Reference(folder, loaded.device, loaded.dtype)
    with_engine(engine, prompts(2, options.prompt), 8, together=True)
    reference.generate(prompts(2, options.prompt), 8)
    for count in options.requests:
        asked = prompts(count, options.prompt)
        mine, seconds, firsts = with_engine(engine, asked, options.tokens, together=True)
        alone, slow, _ = with_engine(engine, asked, options.tokens, together=False)
        theirs = [reference.generate([ids], options.tokens) for ids in asked]
        padded, padded_seconds = reference.generate(asked, options.tokens)
        one_by_one = sum(seconds for _, seconds in theirs)
        total = count * options.tokens
        same = sum(ids == made[0] for ids, (made, _) in zip(mine, theirs, strict=True))
        print(
            json.dumps(
                {
                    "requests": count,
                    "device": str(loaded.device),
                    "dtype": str(loaded.dtype).removeprefix("torch."),
                    "engine tokens/s": round(total / seconds, 1),
                    "engine one by one tokens/s": round(total / slow, 1),
                    "generate one by one tokens/s": round(total / one_by_one, 1),
                    "generate padded batch tokens/s": round(total / padded_seconds, 1),
                    "first token, median ms": round(1e3 * sorted(firsts)[count // 2], 1),
                    "first token, last ms": round(1e3 * max(firsts), 1),
                    "same tokens as generate alone": f"{same}/{count}",
                    "alone as together": alone == mine,
                    "padded as alone": [made[0] for made, _ in theirs] == padded,
                }
            ),
            flush=True,
        )
    asyncio.run(engine.close())


if __name__ == "__main__":
    main()
