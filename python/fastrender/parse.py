"""`fastrender parse`: what the parsers make of models' outputs.

With a parser named, stdin is the text of one output, and the message is printed. Without, each line
of stdin is a case, a JSON object that names its parsers and has the output as `text`, and each line
of stdout is what is made of it: whole, and streamed every 1, 3 and 7 tokens.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO

MOST_BYTES = 64 << 20
_FAILED = 1
_USAGE_ERROR = 2


class _TooLongError(ValueError):
    pass


def main(words: Sequence[str]) -> int:
    """Run `fastrender parse` with these arguments; the exit code."""
    options = _parser().parse_args(words)
    from fastrender._native import RequestError, SetupError, parse_text, tool_format_names

    named = options.tool_call_parser is not None or options.reasoning_parser is not None
    try:
        formats = [
            pathlib.Path(path).read_text(encoding="utf-8") for path in options.tool_parser_file
        ]
        for toml in formats:
            tool_format_names(toml)
        source = sys.stdin.buffer
        if options.input != "-":
            source = open(options.input, "rb")  # noqa: SIM115
        with source:
            if not named:
                return _answer_cases(source, formats)
            text = _bounded(source.read(MOST_BYTES + 1)).decode("utf-8", "replace")
        message = parse_text(
            text,
            tool_parser=options.tool_call_parser,
            reasoning_parser=options.reasoning_parser,
            tool_formats=formats,
        )
    except SetupError as error:
        return _complain(str(error), _USAGE_ERROR)
    except (RequestError, OSError, UnicodeDecodeError, _TooLongError) as error:
        return _complain(str(error), _FAILED)
    print(json.dumps(json.loads(message), ensure_ascii=False, indent=2))
    return 0


def _answer_cases(source: "BinaryIO", formats: list[str]) -> int:
    from fastrender._native import RequestError, SetupError, parse_case

    code = 0
    for line in _lines(source):
        try:
            answer = parse_case(line.decode("utf-8"), tool_formats=formats)
        except (RequestError, SetupError, UnicodeDecodeError) as error:
            answer = json.dumps({"error": str(error)}, ensure_ascii=False)
            code = _FAILED
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()
    return code


def _lines(source: "BinaryIO") -> Iterator[bytes]:
    while line := source.readline(MOST_BYTES + 1):
        if _bounded(line).strip():
            yield line


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise _TooLongError(f"an output may have {MOST_BYTES} bytes at most")
    return data


def _complain(text: str, code: int) -> int:
    print(f"fastrender: {text}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastrender parse", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tool-call-parser", metavar="NAME", help="Format of the tool calls.")
    parser.add_argument("--reasoning-parser", metavar="NAME", help="Format of the reasoning.")
    parser.add_argument(
        "--tool-parser-file",
        metavar="FILE",
        action="append",
        default=[],
        help="A tool format of your own, in TOML; may be given more than once.",
    )
    parser.add_argument("--input", metavar="FILE", default="-", help="Instead of stdin.")
    return parser
