"""Write rust/core/src/template/printable.rs: which characters Python's `repr` shows as they are.

Run it with the interpreter that is the reference (CPython 3.11, Unicode 14): `python tests/golden/generate_printable.py`.
"""

import platform
import unicodedata
from pathlib import Path

TARGET = Path(__file__).parents[2] / "rust/core/src/template/printable.rs"

HEADER = """//! Characters that Python's `repr` escapes. Written by `tests/golden/generate_printable.py`: do not edit.
//!
//! From `CPython` {python} (Unicode {unicode}).

/// Whether `str.isprintable` holds.
pub(super) fn is_printable(character: char) -> bool {{
    let code = u32::from(character);
    let place = ESCAPED.partition_point(|&(_, last)| last < code);
    ESCAPED.get(place).is_none_or(|&(first, _)| code < first)
}}

#[rustfmt::skip]
#[expect(clippy::unreadable_literal, reason = "code points")]
const ESCAPED: [(u32, u32); {count}] = [
"""


def escaped_ranges() -> list[tuple[int, int]]:
    """Ranges of code points that are not printable, lone surrogates included."""
    ranges: list[tuple[int, int]] = []
    for code in range(0x110000):
        if chr(code).isprintable():
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return ranges


def main() -> None:
    """Write the file."""
    ranges = escaped_ranges()
    version = {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
    lines = [HEADER.format(**version, count=len(ranges))]
    for start in range(0, len(ranges), 6):
        row = ", ".join(f"(0x{first:x}, 0x{last:x})" for first, last in ranges[start : start + 6])
        lines.append(f"    {row},\n")
    TARGET.write_text("".join(lines) + "];\n", encoding="utf-8")


if __name__ == "__main__":
    main()
