import base64
import hashlib
import io
import json
import pathlib
import struct
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, ImageOps

from fastrender.errors import RequestError
from fastrender.media import (
    Decoded,
    DecodeOptions,
    MediaLimits,
    RequestBudget,
    decode_rgb,
    read_header,
)

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "decode.json").read_text(encoding="utf-8")
)["cases"]
# Pytest's own filters stand before the package's, which drops Pillow's warnings.
pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore:::PIL")]


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def png_chunk(kind: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check


def png(
    width: int, height: int, *, depth: int, color: int, rows: bytes, trns: bytes = b""
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    chunks = [png_chunk(b"IHDR", header)]
    if color == 3:
        chunks.append(png_chunk(b"PLTE", bytes([10, 20, 30, 200, 100, 50])))
    if trns:
        chunks.append(png_chunk(b"tRNS", trns))
    chunks += [png_chunk(b"IDAT", zlib.compress(rows, 9)), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def refusal(data: bytes, **arguments: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decode_rgb(data, **arguments)
    assert (caught.value.status, caught.value.type) == (400, "BadRequestError")
    assert caught.value.param is None
    return caught.value


def outcome(
    data: bytes, options: Mapping[str, Any], limits: MediaLimits | None = None
) -> Decoded | RequestError:
    try:
        return decode_rgb(
            data, options=DecodeOptions.from_kwargs(options), limits=limits or MediaLimits()
        )
    except RequestError as error:
        return error


@pytest.mark.parametrize("name", GOLDEN)
def test_images_decode_as_the_reference_decodes_them(name: str) -> None:
    case = GOLDEN[name]
    data = base64.b64decode(case["data"])
    decoded = outcome(data, case["options"])
    if isinstance(decoded, RequestError):
        assert "error" in case, decoded.message
        assert (decoded.status, decoded.type, decoded.param) == (400, "BadRequestError", None)
        return
    io_config = decoded.io_config and json.loads(json.dumps(decoded.io_config))
    assert {
        "size": [decoded.width, decoded.height],
        "rgb": hashlib.sha256(decoded.rgb).hexdigest(),
        "io_config": io_config,
    } == {key: value for key, value in case.items() if key not in ("data", "options")}
    header = read_header(data, options=DecodeOptions.from_kwargs(case["options"]))
    assert (header.width, header.height) == (decoded.width, decoded.height)
    assert header.io_config == decoded.io_config


def turned_by_hand(image: Image.Image, orientation: int) -> Image.Image:
    turn = Image.Transpose
    method = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }.get(orientation)
    return image if method is None else image.transpose(method)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_orientation_turns_the_image_and_its_size(format: str, orientation: int) -> None:
    image = Image.effect_noise((24, 16), 80).convert("RGB")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    data = encoded(image, format, exif=exif.tobytes())
    expected = turned_by_hand(Image.open(io.BytesIO(data)), orientation)
    decoded = decode_rgb(data)
    header = read_header(data)
    assert (decoded.width, decoded.height) == expected.size == (header.width, header.height)
    assert decoded.rgb == expected.tobytes()
    assert decoded.io_config is None


TRANSPARENT = {
    "RGBA": png(2, 1, depth=8, color=6, rows=b"\0" + bytes([10, 20, 30, 0, 200, 100, 50, 255])),
    "LA": png(2, 1, depth=8, color=4, rows=b"\0" + bytes([10, 0, 200, 255])),
    "P with an index": png(2, 1, depth=8, color=3, rows=b"\0\0\1", trns=b"\0"),
    "P with bytes": png(2, 1, depth=8, color=3, rows=b"\0\0\1", trns=b"\0\xff"),
    "RGB with a colour": png(
        2,
        1,
        depth=8,
        color=2,
        rows=b"\0" + bytes([10, 20, 30, 200, 100, 50]),
        trns=struct.pack(">HHH", 10, 20, 30),
    ),
}


@pytest.mark.parametrize("kind", TRANSPARENT)
def test_the_background_shows_through_transparency(kind: str) -> None:
    right = [200, 200, 200] if kind == "LA" else [200, 100, 50]
    decoded = decode_rgb(TRANSPARENT[kind])
    assert list(decoded.rgb) == [255, 255, 255, *right]
    assert decoded.io_config == {
        "image_mode": "RGB",
        "rgba_background_color": (255, 255, 255),
    }
    options = DecodeOptions.from_kwargs({"rgba_background_color": [1, 2, 3]})
    assert list(decode_rgb(TRANSPARENT[kind], options=options).rgb) == [1, 2, 3, *right]


def test_grey_of_16_bits_is_clipped_as_the_reference_clips_it() -> None:
    rows = b"\0" + struct.pack(">5H", 0, 255, 256, 32768, 65535)
    decoded = decode_rgb(png(5, 1, depth=16, color=0, rows=rows))
    assert list(decoded.rgb[::3]) == [0, 255, 255, 255, 255]


def test_options_that_change_nothing_are_not_in_the_io_config() -> None:
    data = encoded(Image.new("RGB", (4, 4), "red"))
    options = DecodeOptions.from_kwargs({"rgba_background_color": [0, 0, 0], "other": 1})
    assert decode_rgb(data, options=options).io_config is None
    as_grey = DecodeOptions(image_mode="L")
    assert decode_rgb(data, options=as_grey).io_config == as_grey.io_config()
    assert decode_rgb(data, options=DecodeOptions(image_mode=None)).io_config is None


@pytest.mark.parametrize(
    "kwargs",
    [
        {"image_mode": 5},
        {"rgba_background_color": [1, 2]},
        {"rgba_background_color": [1, 2, 256]},
        {"rgba_background_color": "white"},
        {"rgba_background_color": [1.0, 2, 3]},
    ],
)
def test_options_of_the_wrong_kind_are_refused(kwargs: Mapping[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        DecodeOptions.from_kwargs(kwargs)
    assert caught.value.status == 400


def bomb() -> bytes:
    """A PNG of 40000 x 40000 pixels of one bit, in 200 KB."""
    return png(40_000, 40_000, depth=1, color=0, rows=bytes(5_001 * 40_000))


def lying_jpeg() -> bytes:
    """A JPEG whose header says 65500 x 65500."""
    data = bytearray(encoded(Image.new("RGB", (16, 16)), "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 65_500, 65_500)
    return bytes(data)


def lying_tiff() -> bytes:
    """A TIFF of one strip that says 40000 x 40000."""
    data = bytearray(encoded(Image.new("L", (16, 16)), "TIFF"))
    for tag in (256, 257):
        value = data.index(struct.pack("<HHII", tag, 4, 1, 16)) + 8
        data[value : value + 4] = struct.pack("<I", 40_000)
    return bytes(data)


def lying_webp() -> bytes:
    """The header of a WebP whose canvas is 16384 x 16384."""
    canvas = (16_383).to_bytes(3, "little") * 2
    chunk = b"VP8X" + struct.pack("<I", 10) + b"\2\0\0\0" + canvas
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def lying_avif() -> bytes:
    """An AVIF whose header says 15000 x 15000."""
    data = bytearray(encoded(Image.new("RGB", (16, 16)), "AVIF"))
    extents = data.index(b"ispe") + 8
    data[extents : extents + 8] = struct.pack(">II", 15_000, 15_000)
    return bytes(data)


def lying_gif() -> bytes:
    """A GIF whose screen is 65535 x 65535."""
    data = bytearray(encoded(Image.new("P", (16, 16)), "GIF"))
    data[6:10] = b"\xff\xff\xff\xff"
    return bytes(data)


@pytest.mark.parametrize("make", [bomb, lying_jpeg, lying_tiff, lying_webp, lying_avif, lying_gif])
def test_too_many_pixels_are_refused_from_the_header(make: Callable[[], bytes]) -> None:
    data = make()
    assert len(data) < 250_000
    tracemalloc.start()
    refusal(data)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    with pytest.raises(RequestError) as caught:
        read_header(data)
    assert caught.value.status == 400


def test_the_bound_on_pixels_is_the_settings() -> None:
    data = encoded(Image.new("RGB", (20, 10)))
    assert decode_rgb(data, limits=MediaLimits(image_pixels=200)).width == 20
    assert "20x10" in refusal(data, limits=MediaLimits(image_pixels=199)).message
    assert decode_rgb(data, limits=MediaLimits(image_pixels=0)).width == 20


def test_an_icon_larger_than_it_says_is_refused() -> None:
    inner = encoded(Image.new("RGB", (300, 300)))
    header = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inner), 22)
    limits = MediaLimits(image_pixels=1_000)
    assert "300x300" in refusal(header + inner, limits=limits).message


def test_the_images_of_a_request_share_a_budget() -> None:
    data = encoded(Image.new("RGB", (10, 10)))
    budget = RequestBudget(MediaLimits(request_decoded_bytes=1_000))
    decode_rgb(data, budget=budget)
    read_header(data, budget=budget)
    refusal(data, budget=budget)
    unbounded = RequestBudget(MediaLimits(request_decoded_bytes=0))
    assert all(decode_rgb(data, budget=unbounded).width == 10 for _ in range(20))


def test_twenty_large_images_are_refused_once_the_budget_is_spent() -> None:
    # 100 megapixels each; only headers are read of those that are refused.
    data = png(10_000, 10_000, depth=1, color=0, rows=bytes(1_251 * 10_000))
    budget = RequestBudget(MediaLimits())
    outcomes = []
    for _ in range(20):
        try:
            read_header(data, budget=budget)
        except RequestError as error:
            outcomes.append(error.status)
    assert outcomes == [400] * 19


def test_only_the_first_of_a_thousand_frames_is_decoded() -> None:
    frames = [Image.new("P", (64, 64), index % 256) for index in range(1_000)]
    for index, frame in enumerate(frames):
        frame.putpalette([value % 256 for value in range(index, index + 768)])
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    expected = Image.open(io.BytesIO(data)).convert("RGB").tobytes()
    assert decode_rgb(data).rgb == expected


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_truncated_images_are_refused(format: str) -> None:
    data = encoded(Image.effect_noise((64, 48), 90).convert("RGB"), format)
    refusal(data[: len(data) * 2 // 3])


def test_formats_that_run_programs_are_not_read() -> None:
    refusal(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P", "L", "1", "CMYK", "I;16", "F", "YCbCr"])
def test_modes_become_rgb_by_pillows_own_rules(mode: str) -> None:
    image = Image.effect_noise((9, 7), 90)
    if mode == "F":
        image = image.convert("F")
    elif mode == "I;16":
        image = image.convert("I").convert("I;16")
    elif mode == "PA":
        image = image.convert("RGB").quantize(8).convert("PA")
    else:
        image = image.convert("RGB").convert(mode)
    if mode in ("RGBA", "LA", "PA"):
        image.putalpha(Image.effect_noise((9, 7), 90))
        over = image.convert("RGBA")
        expected = Image.new("RGB", over.size, (255, 255, 255))
        expected.paste(over, mask=over.split()[3])
    else:
        expected = image.convert("RGB")
    buffer = encoded(image, "TIFF") if mode != "PA" else encoded(image.convert("LA"), "TIFF")
    if mode == "PA":
        over = image.convert("LA").convert("RGBA")
        expected = Image.new("RGB", over.size, (255, 255, 255))
        expected.paste(over, mask=over.split()[3])
    assert decode_rgb(buffer).rgb == expected.tobytes()


def test_the_header_of_a_png_with_text_behind_its_pixels_needs_no_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encoded(Image.new("RGBA", (30, 20)))
    data = data.replace(
        png_chunk(b"IEND", b""),
        png_chunk(b"tEXt", b"date:create\x002026") + png_chunk(b"IEND", b""),
    )
    from PIL import PngImagePlugin

    def load(_: Any) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", load)
    header = read_header(data)
    assert (header.width, header.height, header.format, header.mode) == (30, 20, "PNG", "RGBA")


def test_pillow_neither_prints_nor_raises_warnings() -> None:
    script = """
import io, struct, sys, warnings
from PIL import Image
from fastrender.media import decode_rgb, read_header, MediaLimits
before = Image.MAX_IMAGE_PIXELS
header = struct.pack(">IIBBBBB", 12_000, 12_000, 1, 0, 0, 0, 0)
import zlib
chunk = lambda k, c: struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c))
data = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"")
assert read_header(data).width == 12_000
buffer = io.BytesIO()
Image.new("RGB", (4, 4)).save(buffer, "JPEG", exif=b"Exif\\0\\0MM\\0*\\0\\0\\0\\x08\\xff\\xff")
assert decode_rgb(buffer.getvalue()).width == 4
assert Image.MAX_IMAGE_PIXELS == before
"""
    root = pathlib.Path(__file__).parents[2] / "python"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_decode_side_by_side_to_the_same_pixels() -> None:
    image = Image.effect_noise((640, 480), 90).convert("RGB")
    data = encoded(image, "JPEG")
    alone = decode_rgb(data)
    with ThreadPoolExecutor(8) as pool:
        assert all(decoded == alone for decoded in pool.map(decode_rgb, [data] * 64))


def test_other_threads_run_while_an_image_is_decoded() -> None:
    data = encoded(Image.effect_noise((3_000, 3_000), 90).convert("RGB"), "JPEG", quality=95)
    thread = threading.Thread(target=decode_rgb, args=(data,))
    ticks = 0
    thread.start()
    while thread.is_alive():
        ticks += 1
    assert ticks > 1_000


def test_decoding_equals_the_plain_expression_of_its_rules() -> None:
    image = Image.effect_noise((50, 40), 90).convert("RGB")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 7
    data = encoded(image, "JPEG", exif=exif.tobytes())
    plain = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    decoded = decode_rgb(data)
    assert (decoded.width, decoded.height, decoded.rgb) == (*plain.size, plain.tobytes())


SEEDS = [base64.b64decode(case["data"]) for case in GOLDEN.values() if len(case["data"]) < 4_000]


@settings(max_examples=300, deadline=None)
@given(data=st.one_of(st.binary(max_size=200), st.binary(min_size=1).map(lambda d: b"RIFF" + d)))
def test_random_bytes_give_an_image_or_a_refusal(data: bytes) -> None:
    survives(data)


@settings(max_examples=600, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 4_000),
)
def test_damaged_images_give_an_image_or_a_refusal(
    seed: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(seed)
    for position, value in edits:
        if position < len(data):
            data[position] = value
    survives(bytes(data[:cut] if cut < 200 else data))


def survives(data: bytes) -> None:
    limits = MediaLimits(image_pixels=1_000_000)
    decoded = outcome(data, {}, limits)
    if isinstance(decoded, RequestError):
        assert decoded.status == 400
        return
    assert len(decoded.rgb) == decoded.width * decoded.height * 3
    header = read_header(data, limits=limits)
    try:
        Image.open(io.BytesIO(data)).load()
    except Exception:
        # Such an image is not turned where the second attempt at its pixels succeeds; see `turned`.
        return
    assert (header.width, header.height) == (decoded.width, decoded.height)
    assert header.io_config == decoded.io_config
