"""The native tokenizer against `tokenizers` of PyPI: ids, offsets, text."""

import array
import functools
import json
import os
import pathlib
import sys
import threading
import time

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastrender
from fastrender._native import SetupError, Tokenizer

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SHARED = pathlib.Path(os.environ.get("FASTRENDER_SHARED", _ROOT.parent / "shared"))
_EMBEDDED = pathlib.Path(fastrender.__file__).parent / "embedded"
# For each real model; the sum stays well under a test's time limit.
_SECONDS_PER_MODEL = 1.0

# Contractions with a long s and a Kelvin sign, emoji sequences, decomposed letters, vocabulary
# alphabets taken literally, marks newer than the library's tables.
_PIECES = [
    *("'s", "'LL", "'\u017f", "\u2019s", "\u212a", "\u00e9", "e\u0301", "a\u0308\u0323"),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u1112\u1161\u11ab"),
    *(
        "한국어",
        "日本語",
        "中文",
        "العربية",
        "हिन्दी",
        "٣٤٥",
        "½",
        "123",
        "1234567",
        "Hello",
        "WORLD",
    ),
    *("camelCase", "//", "===", '{"a":', "▁", "<0x0A>", "Ġ", "<", "<|", "|>", "\ufffd", "\ufb01"),
    *("\u212b", "x\u0323\u1df6", "the", "of"),
]
_SPACES = [" ", "  ", "\n", "\r\n\n", "\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\x85"]


def _numbers(data: bytes) -> list[int]:
    numbers = array.array("I")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _oracle(path: pathlib.Path) -> tokenizers.Tokenizer:
    oracle = tokenizers.Tokenizer.from_file(str(path))
    oracle.no_truncation()
    oracle.no_padding()
    return oracle


@functools.cache
def _embedded() -> tuple[Tokenizer, tokenizers.Tokenizer]:
    path = _EMBEDDED / "tokenizer.json"
    return Tokenizer(path.read_bytes(), b'{"cache_bytes": 1000000}'), _oracle(path)


def _difference(ours: Tokenizer, oracle: tokenizers.Tokenizer, text: str) -> str | None:
    """What differs, in words."""
    for special in (False, True):
        want = oracle.encode(text, add_special_tokens=special)
        ids, offsets = ours.encode_with_offsets(text, add_special_tokens=special)
        numbers = _numbers(offsets)
        got = (_numbers(ids), list(zip(numbers[::2], numbers[1::2], strict=True)))
        if got != (want.ids, want.offsets) or ids != ours.encode(text, add_special_tokens=special):
            return f"{text!r}: {got}, not {want.ids}, {want.offsets}"
        decoded = oracle.decode(want.ids, skip_special_tokens=special)
        if ours.decode(want.ids, skip_special_tokens=special) != decoded:
            return f"text of {want.ids} is not {decoded!r}"
    return None


def _texts(specials: list[str]) -> st.SearchStrategy[str]:
    piece = st.one_of(
        st.sampled_from(_PIECES),
        st.sampled_from(_SPACES),
        st.sampled_from(specials),
        st.text(max_size=12),
        st.builds(lambda c, n: c * n, st.characters(codec="utf-8"), st.integers(1, 80)),
    )
    return st.lists(piece, max_size=25).map("".join)


@settings(max_examples=300, deadline=None)
@given(text=_texts(["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<think>", "<|im_", "nd|>"]))
def test_the_embedded_tokenizer_equals_tokenizers(text: str) -> None:
    ours, oracle = _embedded()
    assert ours.backend.startswith("fast: ")
    assert _difference(ours, oracle, text) is None
    assert _difference(ours, oracle, text) is None, "from the cache"


@settings(max_examples=100, deadline=None)
@given(
    text=_texts(["<|im_start|>"]),
    length=st.integers(0, 20),
    side=st.sampled_from(["left", "right"]),
)
def test_truncation_equals_tokenizers(text: str, length: int, side: str) -> None:
    ours, shared = _embedded()
    oracle = tokenizers.Tokenizer.from_str(shared.to_str())
    oracle.enable_truncation(length, direction=side)
    for special in (False, True):
        got = ours.encode(text, add_special_tokens=special, max_length=length, truncation_side=side)
        assert _numbers(got) == oracle.encode(text, add_special_tokens=special).ids


_MODELS = sorted((_SHARED / "assets").glob("*/tokenizer.json"))


@pytest.mark.skipif(not _MODELS, reason="no ../shared/assets")
@pytest.mark.parametrize("path", _MODELS, ids=lambda path: path.parent.name)
def test_tokenizers_of_real_models_equal_tokenizers(path: pathlib.Path) -> None:
    ours, oracle = Tokenizer(path.read_bytes()), _oracle(path)
    vocabulary = oracle.get_vocab()
    assert ours.max_token_id == max(vocabulary.values())
    assert ours.longest_token_chars == max(map(len, vocabulary))
    specials = sorted(token.content for token in oracle.get_added_tokens_decoder().values())
    differences = []
    end = time.monotonic() + _SECONDS_PER_MODEL

    @settings(
        max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(text=_texts(specials or ["<s>"]))
    def compare(text: str) -> None:
        if time.monotonic() < end and (found := _difference(ours, oracle, text)):
            differences.append(found)

    compare()
    for corpus in sorted((_SHARED / "assets" / "corpora").glob("*.txt")):
        with corpus.open(encoding="utf-8") as file:
            text = file.read(6_000)
        if found := _difference(ours, oracle, text):
            differences.append(found)
    assert not differences


def test_other_threads_run_while_the_tokenizer_encodes() -> None:
    tokenizer, _ = _embedded()
    text = "".join(chr(0x4E00 + n % 20_000) for n in range(2_000_000))
    done = threading.Event()

    def encode() -> None:
        tokenizer.encode(text)
        done.set()

    worker = threading.Thread(target=encode)
    worker.start()
    turns = 0
    while not done.wait(0.001):
        turns += 1
    worker.join()
    assert turns > 5


def test_the_cache_counts_what_it_saves() -> None:
    path = _EMBEDDED / "tokenizer.json"
    tokenizer = Tokenizer(path.read_bytes(), json.dumps({"cache_bytes": 1 << 20}).encode())
    turn = "<|im_start|>user\n" + "Some words of a longer turn. " * 20 + "<|im_end|>\n"
    tokenizer.encode(turn)
    tokenizer.encode(turn * 3)
    hits, misses, size, entries = tokenizer.cache_stats()
    assert (hits, misses, entries) == (3, 1, 1)
    assert 0 < size < 1 << 20


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(SetupError, match=r"^tokenizer\.json cannot be used: "):
        Tokenizer(b"{}")
    with pytest.raises(SetupError, match="spec is malformed"):
        Tokenizer(b"{}", b'{"unknown": 1}')
    with pytest.raises(ValueError, match="unknown truncation side `up`; known: left, right"):
        _embedded()[0].encode("text", max_length=3, truncation_side="up")
