"""Write decode.json: what vLLM's own image loader, and the processors behind it, make of images.

Run it in the reference's environment (../shared/reference/install.sh), with the folder of vLLM
0.33's sources:

    PYTHONPATH=REFERENCE/site-0.33 REFERENCE/venv/bin/python tests/golden/generate_decode.py
"""

import base64
import hashlib
import importlib.metadata
import io
import json
import os
import pathlib
import random
import struct
import sys
import zlib
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_PLUGINS="",
)

from PIL import Image
from transformers.image_transforms import convert_to_rgb
from vllm import config  # noqa: F401  (first, or the import below goes in a circle)
from vllm.multimodal.media.image import ImageMediaIO

ORIENTATION = 0x0112
SIZE = (13, 9)


def picture(mode: str, size: tuple[int, int] = SIZE) -> Image.Image:
    """Noise on a ramp, the same each time, with every value of alpha."""
    random_bytes = random.Random(f"{mode}{size}")
    if mode in ("I;16", "I", "F"):
        image = Image.new(mode, size)
        edges = [0, 1, 127, 128, 255, 256, 257, 32767, 32768, 65534, 65535]
        for index in range(size[0] * size[1]):
            value = edges[index] if index < len(edges) else random_bytes.randrange(65536)
            image.putpixel((index % size[0], index // size[0]), value)
        return image
    if mode == "1":
        return picture("L", size).convert("1")
    if mode == "P":
        return picture("RGB", size).quantize(16)
    if mode == "PA":
        image = picture("P", size).convert("PA")
        image.putalpha(picture("L", size))
        return image
    bands = len(mode) if mode != "YCbCr" else 3
    return Image.frombytes(mode, size, random_bytes.randbytes(size[0] * size[1] * bands))


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def exif(orientation: Any, **more: Any) -> bytes:
    data = Image.Exif()
    data[ORIENTATION] = orientation
    for tag, value in more.items():
        data[int(tag[1:])] = value
    return data.tobytes()


def chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )


def png(
    width: int, height: int, depth: int, color: int, *between: bytes, late: bytes = b""
) -> bytes:
    """A PNG by hand, for the kinds that Pillow does not write; noise with a filter byte of 0."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    row = (width * channels * depth + 7) // 8
    noise = random.Random(f"{width}x{height}:{depth}:{color}")
    rows = b"".join(b"\0" + noise.randbytes(row) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + b"".join(between)
        + chunk(b"IDAT", zlib.compress(rows))
        + late
        + chunk(b"IEND", b"")
    )


def cases() -> dict[str, dict[str, Any]]:
    """Encoded images by name, each with the options of its decoding."""
    found: dict[str, dict[str, Any]] = {}

    def add(name: str, data: bytes, **options: Any) -> None:
        found[name] = {"data": base64.b64encode(data).decode(), "options": options}

    rgb, rgba, grey = picture("RGB"), picture("RGBA"), picture("L")
    palette = picture("P")
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        add(f"png {mode}", saved(picture(mode), "PNG"))
    add("png P transparent index", saved(palette, "PNG", transparency=3))
    add("png P transparent bytes", saved(palette, "PNG", transparency=bytes([0, 128, 255, 7])))
    add("png RGB transparent colour", saved(rgb, "PNG", transparency=rgb.getpixel((2, 1))))
    add("png L transparent grey", saved(grey, "PNG", transparency=grey.getpixel((2, 1))))
    add("png 1 transparent", saved(picture("1"), "PNG", transparency=0))
    add("png I;16 transparent", saved(picture("I;16"), "PNG", transparency=256))
    for depth in (1, 2, 4, 8, 16):
        add(f"png grey {depth} bits", png(9, 5, depth, 0))
        transparent = chunk(b"tRNS", struct.pack(">H", 1))
        add(f"png grey {depth} bits transparent", png(9, 5, depth, 0, transparent))
    colors = chunk(b"PLTE", random.Random("palette").randbytes(3 * 16))
    for depth in (1, 2, 4):
        add(f"png palette {depth} bits", png(9, 5, depth, 3, colors))
        alphas = chunk(b"tRNS", bytes([0, 100]))
        add(f"png palette {depth} bits transparent", png(9, 5, depth, 3, colors, alphas))
    add("png palette transparent all", png(9, 5, 4, 3, colors, chunk(b"tRNS", b"\0" * 16)))
    add("png rgb 16 bits", png(9, 5, 16, 2))
    rare = chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3))
    add("png rgb 16 bits transparent", png(9, 5, 16, 2, rare))
    add("png grey alpha 16 bits", png(9, 5, 16, 4))
    add("png rgba 16 bits", png(9, 5, 16, 6))
    add("png late tRNS", png(9, 5, 8, 2, late=chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3))))
    add("png late palette tRNS", png(9, 5, 4, 3, colors, late=chunk(b"tRNS", b"\0\1\2")))
    add("png late exif", png(9, 5, 8, 2, late=chunk(b"eXIf", exif(6)[6:])))
    xmp = b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="6"/>'
    add("png xmp", png(9, 5, 8, 2, chunk(b"iTXt", xmp)))
    add("png late xmp", png(9, 5, 8, 2, late=chunk(b"iTXt", xmp)))
    raw = b"\nexif\n%8d\n%s\n" % (len(exif(8)), exif(8).hex().encode())
    raw = b"Raw profile type exif\0\0" + zlib.compress(raw)
    add("png raw exif", png(9, 5, 8, 2, chunk(b"zTXt", raw)))
    add("png late raw exif", png(9, 5, 8, 2, late=chunk(b"zTXt", raw)))
    add("png late text", png(9, 5, 8, 6, late=chunk(b"tEXt", b"date:create\x002026")))
    add("png grey gamma", png(9, 5, 8, 0, chunk(b"gAMA", struct.pack(">I", 45455))))
    add("png animated", saved(rgb, "PNG", save_all=True, append_images=[rgba.convert("RGB")]))
    still = {"save_all": True, "default_image": True, "append_images": [rgb.rotate(180)]}
    add("png animated behind a default", saved(rgb, "PNG", **still))
    for orientation in range(10):
        add(f"jpeg exif {orientation}", saved(rgb, "JPEG", exif=exif(orientation)))
    for orientation in (3, 6, 9):
        add(f"png exif {orientation}", saved(rgba, "PNG", exif=exif(orientation)))
        add(
            f"png P exif {orientation}",
            saved(palette, "PNG", transparency=0, exif=exif(orientation)),
        )
        add(f"webp exif {orientation}", saved(rgb, "WEBP", lossless=True, exif=exif(orientation)))
        add(f"tiff exif {orientation}", saved(rgb, "TIFF", exif=exif(orientation)))
    for orientation in (2, 5, 6):
        options = {"compression": "tiff_lzw", "tiffinfo": {ORIENTATION: orientation}}
        add(f"tiff lzw exif {orientation}", saved(rgb, "TIFF", **options))
    add("jpeg broken exif", saved(rgb, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"))
    add("jpeg no exif at all", saved(rgb, "JPEG", exif=b"Exif\0\0nonsense"))
    text = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02\0\0\0\x026\0\0\0\0\0\0\0"
    add("jpeg exif text orientation", saved(rgb, "JPEG", exif=text))
    add("jpeg exif two orientations", saved(rgb, "JPEG", exif=exif((6, 8))))
    add("jpeg exif 6 and more", saved(rgb, "JPEG", exif=exif(6, t270="text", t282=72, t33432="©")))
    # An offset as a tag of its own cannot be written back.
    odd = b"Exif\0\0MM\0*\0\0\0\x08\0\x02\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\x87\x69\0\x02\0\0\0\x02a\0\0\0\0\0\0\0"
    add("jpeg exif odd tags", saved(rgb, "JPEG", exif=odd))
    xmp_packet = b'<x:xmpmeta><rdf:Description tiff:Orientation="5"/></x:xmpmeta>'
    add("jpeg xmp", saved(rgb, "JPEG", xmp=xmp_packet))
    for mode in ("L", "CMYK"):
        add(f"jpeg {mode}", saved(picture(mode), "JPEG"))
    for subsampling in (0, 1, 2):
        large = picture("RGB", (37, 21))
        add(f"jpeg subsampling {subsampling}", saved(large, "JPEG", subsampling=subsampling))
    add("jpeg progressive", saved(picture("RGB", (37, 21)), "JPEG", progressive=True, quality=30))
    add("mpo", saved(rgb, "MPO", save_all=True, append_images=[rgb.rotate(180)]))
    add("gif", saved(palette, "GIF"))
    add("gif transparent", saved(palette, "GIF", transparency=2))
    add("gif L", saved(grey, "GIF"))
    frames = [palette.rotate(90 * turn) for turn in (1, 2, 3)]
    add("gif animated", saved(palette, "GIF", save_all=True, append_images=frames, transparency=1))
    add("webp lossy", saved(picture("RGB", (40, 30)), "WEBP", quality=60))
    add("webp alpha", saved(rgba, "WEBP", lossless=True, exact=True))
    add("webp animated", saved(rgba, "WEBP", save_all=True, append_images=[rgb], lossless=True))
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        add(f"bmp {mode}", saved(picture(mode), "BMP"))
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I;16", "I", "F"):
        add(f"tiff {mode}", saved(picture(mode), "TIFF"))
    add("tiff deflate", saved(rgb, "TIFF", compression="tiff_deflate"))
    add("tiff pages", saved(rgb, "TIFF", save_all=True, append_images=[rgba]))
    big = b"MM\0*\0\0\0\x08\0\x08"
    for tag, kind, value in (
        (256, 3, 3 << 16), (257, 3, 2 << 16), (258, 3, 16 << 16), (259, 3, 1 << 16),
        (262, 3, 1 << 16), (273, 4, 110), (278, 3, 2 << 16), (279, 4, 12),
    ):  # fmt: skip
        big += struct.pack(">HHII", tag, kind, 1, value)
    big += b"\0" * 4
    add("tiff I;16B", big + struct.pack(">6H", 0, 255, 256, 32768, 65534, 65535))
    for mode in ("L", "LA", "RGB", "RGBA"):
        add(f"tga {mode}", saved(picture(mode), "TGA"))
        add(f"jpeg2000 {mode}", saved(picture(mode), "JPEG2000"))
    for mode in ("1", "L", "RGB", "I;16", "F"):
        add(f"ppm {mode}", saved(picture(mode), "PPM"))
    for mode in ("RGB", "RGBA"):
        icon = picture(mode, (32, 32))
        add(f"ico {mode}", saved(icon, "ICO", sizes=[(16, 16), (32, 32)]))
        add(f"ico bmp {mode}", saved(icon, "ICO", sizes=[(32, 32)], bitmap_format="bmp"))
        add(f"icns {mode}", saved(picture(mode, (1, 1)).resize((32, 32)), "ICNS"))
        add(f"avif {mode}", saved(icon, "AVIF"))
        add(f"dds {mode}", saved(picture(mode), "DDS"))
        add(f"qoi {mode}", saved(picture(mode), "QOI"))
        add(f"im {mode}", saved(picture(mode), "IM"))
        add(f"sgi {mode}", saved(picture(mode), "SGI"))
    for mode in ("1", "L", "P", "RGB"):
        add(f"pcx {mode}", saved(picture(mode), "PCX"))
    add("xbm", saved(picture("1"), "XBM"))
    add("eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    broken = saved(picture("RGB", (40, 30)), "PNG")
    add("png truncated", broken[: len(broken) // 2])
    add("png of a header alone", broken[:33])
    damaged = bytearray(broken)
    damaged[len(broken) // 2] ^= 0xFF
    add("png damaged", bytes(damaged))
    broken = saved(picture("RGB", (40, 30)), "JPEG")
    add("jpeg truncated", broken[: len(broken) // 2])
    add("jpeg without its last byte", broken[:-1])
    broken = saved(picture("RGBA", (40, 30)), "WEBP", lossless=True)
    add("webp truncated", broken[: len(broken) // 2])
    broken = saved(palette, "GIF")
    add("gif truncated", broken[: len(broken) // 2])
    broken = saved(rgb, "TIFF")
    add("tiff truncated", broken[: len(broken) // 2])
    broken = saved(rgb, "BMP")
    add("bmp truncated", broken[: len(broken) // 2])
    add("nothing", b"")
    transparent_palette = saved(palette, "PNG", transparency=3)
    for mode in ("L", "RGBA", "CMYK", "P", "1", "LA", "nonsense", None):
        for name, data in (
            ("RGBA", saved(rgba, "PNG")),
            ("RGB", saved(rgb, "PNG")),
            ("L", saved(grey, "PNG")),
            ("P", transparent_palette),
        ):
            add(f"mode {mode} of {name}", data, image_mode=mode)
    for background in ([0, 0, 0], [10, 200, 30]):
        add(f"on {background}", saved(rgba, "PNG"), rgba_background_color=background)
        add(f"RGB on {background}", saved(rgb, "PNG"), rgba_background_color=background)
        add(f"P on {background}", transparent_palette, rgba_background_color=background)
        late = saved(rgba, "PNG", exif=exif(6))
        add(f"turned on {background}", late, rgba_background_color=background)
    for background in ([0, 0], [0, 0, 256], "white", None, [0.5, 1, 2]):
        add(f"impossible {background}", saved(rgba, "PNG"), rgba_background_color=background)
    return found


def reference(case: dict[str, Any]) -> dict[str, Any]:
    """What vLLM's loader and then a Hugging Face processor's first step make of a case."""
    try:
        loader = ImageMediaIO(**case["options"])
        loaded = loader.load_bytes(base64.b64decode(case["data"]))
        pixels = convert_to_rgb(loaded.media)
    except Exception as error:
        return {"error": type(error).__name__}
    return {
        "size": list(pixels.size),
        "rgb": hashlib.sha256(pixels.tobytes()).hexdigest(),
        "io_config": loaded.io_config,
    }


def main() -> None:
    """Ask the reference about every case and write its answers."""
    golden = {name: {**case, **reference(case)} for name, case in cases().items()}
    output = pathlib.Path(__file__).with_name("decode.json")
    source = f"vLLM {importlib.metadata.version('vllm')}, Pillow {Image.__version__}"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in golden.items())
    output.write_text(f'{{\n"source": {json.dumps(source)},\n"cases": {{\n{lines}\n}}\n}}\n')
    refused = [f"{name} ({case['error']})" for name, case in golden.items() if "error" in case]
    print(f"{output}: {len(golden)} cases; refused: {', '.join(refused)}", file=sys.stderr)


if __name__ == "__main__":
    main()
