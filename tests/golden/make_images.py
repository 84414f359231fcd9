"""Write images.json: what torch, torchvision, Pillow and transformers make of synthetic images.

    python tests/golden/make_images.py      # needs transformers 5.x, torch, torchvision 0.28, Pillow 13

A picture is named by (kind, seed, width, height), see `picture`; results are digests (half of a SHA-256) of the little-endian
bytes. `tests/image.rs` makes the same pictures and compares.
"""

import hashlib
import json
import pathlib
import random
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as F
from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

MODES = {
    "bilinear": (F.InterpolationMode.BILINEAR, Image.Resampling.BILINEAR),
    "bicubic": (F.InterpolationMode.BICUBIC, Image.Resampling.BICUBIC),
    "lanczos": (F.InterpolationMode.LANCZOS, Image.Resampling.LANCZOS),
}
STATS = {
    "clip": ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]),
    "half": ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]),
    "imagenet": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# (width, height) before and after.
SIZES = [
    ((1, 1), (1, 1)), ((1, 1), (7, 5)), ((9, 7), (1, 1)), ((1, 33), (5, 14)), ((33, 1), (14, 5)),
    ((17, 13), (17, 13)), ((17, 13), (17, 40)), ((17, 13), (40, 13)), ((64, 48), (64, 17)), ((64, 48), (19, 48)),
    ((101, 37), (53, 91)), ((37, 101), (91, 53)), ((256, 256), (252, 252)), ((200, 150), (196, 140)),
    ((3, 200), (200, 3)), ((500, 3), (7, 300)), ((640, 480), (644, 476)), ((61, 67), (59, 71)),
    ((300, 200), (31, 15)), ((20, 400), (28, 36)), ((401, 20), (28, 21)), ((2, 2), (64, 64)), ((1024, 64), (980, 56)),
]  # fmt: skip
QWEN2 = {
    "patch_size": 14,
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "image_mean": STATS["clip"][0],
    "image_std": STATS["clip"][1],
}
QWEN3 = {
    "patch_size": 16,
    "size": {"shortest_edge": 65536, "longest_edge": 16777216},
    "image_mean": STATS["half"][0],
    "image_std": STATS["half"][1],
}
SMALL = {
    "patch_size": 16,
    "size": {"shortest_edge": 4096, "longest_edge": 65536},
    "image_mean": STATS["half"][0],
    "image_std": STATS["half"][1],
}


def noise(count: int, seed: int) -> np.ndarray:
    """Bytes of splitmix64 counted from `seed`: one byte, the top one, of each output."""
    with np.errstate(over="ignore"):
        x = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(56)).astype(np.uint8)


def picture(kind: str, seed: int, width: int, height: int) -> np.ndarray:
    """`noise`, or `harsh`: the same with every byte driven to 0 or 255, so that filters overshoot."""
    data = noise(width * height * 3, seed)
    if kind == "harsh":
        data = np.where(data >= 128, 255, 0).astype(np.uint8)
    return data.reshape(height, width, 3)


def sha256(data: Any) -> str:
    if isinstance(data, torch.Tensor):
        data = data.contiguous().view(torch.uint8).numpy() if data.ndim else data
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:32]


def resized(data: np.ndarray, to: tuple[int, int], name: str, flavour: str) -> np.ndarray:
    if flavour == "pillow":
        return np.asarray(Image.fromarray(data).resize(to, MODES[name][1]))
    tensor = torch.from_numpy(data.copy()).permute(2, 0, 1)
    out = F.resize(tensor, [to[1], to[0]], interpolation=MODES[name][0], antialias=True)
    return out.permute(1, 2, 0).contiguous().numpy()


def resizes() -> list[dict[str, Any]]:
    dice = random.Random(1)
    rows = []
    pairs = [(*pair, kind) for pair in SIZES for kind in ("noise", "harsh")]
    for _ in range(40):
        pick = lambda: (dice.randint(1, 180), dice.randint(1, 180))  # noqa: E731
        pairs.append((pick(), pick(), dice.choice(["noise", "harsh"])))
    for seed, (source, to, kind) in enumerate(pairs):
        for name in MODES:
            for flavour in ("aten", "pillow"):
                out = resized(picture(kind, seed, *source), to, name, flavour)
                row = {
                    "kind": kind,
                    "seed": seed,
                    "from": source,
                    "to": to,
                    "filter": name,
                    "flavour": flavour,
                }
                rows.append(row | {"sha256": sha256(out)})
    return rows


def lookup_tables() -> list[dict[str, Any]]:
    """Every byte through each channel: [3, 256] values."""
    ramp = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    rows = []
    for stats, (mean, std) in STATS.items():
        common = {"do_resize": False, "image_mean": mean, "image_std": std}
        for arithmetic, normalize in (("fused", True), ("rescale", False), ("pillow", True)):
            if arithmetic == "pillow":
                processor = Qwen2VLImageProcessorPil()
                image = processor.rescale(ramp.transpose(2, 0, 1), 1 / 255)
                value = torch.from_numpy(processor.normalize(image, mean, std))
            else:
                tensor = torch.from_numpy(ramp.copy()).permute(2, 0, 1)[None]
                value = Qwen2VLImageProcessor(**common).rescale_and_normalize(
                    tensor, True, 1 / 255, normalize, tuple(mean), tuple(std)
                )[0]
            assert value.dtype == torch.float32, value.dtype
            for dtype, kind in DTYPES.items():
                rows.append(
                    {
                        "stats": stats,
                        "mean": mean,
                        "std": std,
                        "arithmetic": arithmetic,
                        "dtype": dtype,
                    }
                    | {"sha256": sha256(value.reshape(3, 256).to(kind))}
                )
    return rows


def smart_resizes() -> list[dict[str, Any]]:
    dice = random.Random(2)
    cases = [
        (5, 7),
        (27, 27),
        (98, 28),
        (70, 98),
        (1, 200),
        (1, 201),
        (200, 1),
        (3000, 10),
        (10, 3000),
        (2000, 10),
    ]
    cases += [
        (14, 14),
        (42, 42),
        (16, 48),
        (80, 80),
        (112, 144),
        (1, 1),
        (4096, 4096),
        (9000, 9000),
        (13000, 70),
    ]
    cases += [(dice.randint(1, 5000), dice.randint(1, 5000)) for _ in range(120)]
    cases += [(16 * dice.randint(1, 300), 14 * dice.randint(1, 300)) for _ in range(60)]
    rows = []
    for height, width in cases:
        for factor, low, high in [
            (28, 3136, 12845056),
            (28, 3136, 1003520),
            (32, 65536, 16777216),
            (32, 4096, 1310720),
        ]:
            try:
                size: Any = smart_resize(
                    height, width, factor=factor, min_pixels=low, max_pixels=high
                )
            except ValueError:
                size = None
            rows.append([height, width, factor, low, high, size])
    return rows


def processors() -> list[dict[str, Any]]:
    rows = []
    sizes = [
        (64, 64),
        (5, 7),
        (333, 222),
        (224, 224),
        (1000, 30),
        (129, 640),
        (256, 256),
        (97, 101),
    ]
    for name, config in (("qwen2", QWEN2), ("qwen3", QWEN3), ("small", SMALL)):
        for flavour, backend in (
            ("aten", Qwen2VLImageProcessor),
            ("pillow", Qwen2VLImageProcessorPil),
        ):
            processor = backend(**config)
            for seed, (width, height) in enumerate(sizes):
                image = Image.fromarray(picture("noise", seed, width, height))
                for dtype in ("uint8", *DTYPES):
                    plain = {"do_rescale": False, "do_normalize": False} if dtype == "uint8" else {}
                    out = processor(images=image, return_tensors="pt", **plain)
                    pixels = out["pixel_values"]
                    # The PIL backend hands whole numbers over as float32.
                    pixels = pixels.to(DTYPES.get(dtype, torch.uint8))
                    assert str(pixels.dtype) == f"torch.{dtype}", (pixels.dtype, dtype)
                    rows.append(
                        {
                            "config": name,
                            "flavour": flavour,
                            "dtype": dtype,
                            "seed": seed,
                            "size": [width, height],
                        }
                        | {"grid": out["image_grid_thw"][0].tolist(), "shape": list(pixels.shape)}
                        | {"sha256": sha256(pixels)}
                    )
    return rows


def main() -> None:
    golden = {
        "resize": resizes(),
        "lookup": lookup_tables(),
        "smart_resize": smart_resizes(),
        "processor": processors(),
    }
    path = pathlib.Path(__file__).with_name("images.json")
    parts = [
        f'"{key}":[\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]"
        for key, rows in golden.items()
    ]
    path.write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    main()
