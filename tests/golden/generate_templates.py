"""Render templates of our own with Jinja2 set up as transformers does it, and write tests/golden/templates.json.

Needs jinja2 only: `python tests/golden/generate_templates.py`. Each template is one line or one block of
tests/golden/templates.txt, separated by lines of `---`; what Jinja2 raises is recorded as its type.
"""

from __future__ import annotations

import datetime
import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from jinja2.parser import Parser
    from jinja2.runtime import Macro

HERE = Path(__file__).parent
NOW = datetime.datetime(2026, 11, 30, 12, 34, 56, 789)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Say little."},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Où? <b> \"q\" 'x'"}]},
    {
        "role": "assistant",
        "content": "<think>\nhm\n</think>\n\nThere.",
        "tool_calls": [
            {
                "id": "c1",
                "function": {"name": "find", "arguments": {"z": 1, "a": [1.5, None, True]}},
            }
        ],
    },
    {"role": "tool", "content": "12", "tool_call_id": "c1"},
]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Find a<b & c>'d' → é/路",
            "parameters": {
                "type": "object",
                "properties": {"zulu": {"type": "string"}, "alpha": {"type": "integer"}},
            },
        },
    }
]
VARIABLES: dict[str, Any] = {
    "d": {"b": 2, "a": "x", "n": None, "C": [1]},
    "l": [1, 2, "x", None, 1],
    "f": 1e-07,
    "n": 7,
    "s": "Hello wörld!",
    "big": 10**50,
}


class Generation(jinja2.ext.Extension):
    """`{% generation %}`: a block whose text stays as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Make the block a call with a body, as transformers does."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller: Macro) -> str:
        return str(caller())


def environment() -> ImmutableSandboxedEnvironment:
    """Jinja2 as chat templates expect it."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **style: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **style)

    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    made.filters["tojson"] = tojson
    return made


def variables() -> dict[str, Any]:
    """What every template is rendered with."""
    fixed = {"messages": MESSAGES, "tools": TOOLS, "documents": None, "add_generation_prompt": True}
    return json.loads(json.dumps({**SPECIAL_TOKENS, **VARIABLES, **fixed}))


def render(made: ImmutableSandboxedEnvironment, source: str) -> dict[str, str]:
    """The text, or the name of the error."""
    try:
        return {"text": made.from_string(source).render(**variables())}
    except Exception as error:
        return {"error": type(error).__name__}


def main() -> None:
    """Write the goldens."""
    made = environment()
    sources = (
        (HERE / "templates.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n---\n")
    )
    golden = {
        "generator": "tests/golden/generate_templates.py",
        "jinja2": jinja2.__version__,
        "python": platform.python_version(),
        "now": NOW.isoformat(),
        "special_tokens": SPECIAL_TOKENS,
        "variables": VARIABLES,
        "messages": MESSAGES,
        "tools": TOOLS,
        "cases": [{"source": source, **render(made, source)} for source in sources],
    }
    text = json.dumps(golden, ensure_ascii=False, indent=1)
    (HERE / "templates.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
