"""Chat templates from Python: the core's goldens, and what hypothesis thinks of, against Jinja2."""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from fastrender import ChatTemplate, TemplateError
from folders import ROOT, golden

GOLDEN = golden("templates.json")
NOW = datetime.datetime.fromisoformat(GOLDEN["now"])
USER = [{"role": "user", "content": "hi"}]


def test_goldens_of_jinja2() -> None:
    for case in GOLDEN["cases"]:
        try:
            template = ChatTemplate(case["source"], special_tokens=GOLDEN["special_tokens"])
            text: str | None = template.render(
                GOLDEN["messages"],
                tools=GOLDEN["tools"],
                now=NOW,
                add_generation_prompt=True,
                **GOLDEN["variables"],
            )
        except TemplateError:
            text = None
        assert text == case.get("text"), case["source"]


def test_a_template_error_is_a_value_error_with_the_templates_words() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match=r"^roles must alternate$"):
        template.render(USER)
    with pytest.raises(TemplateError, match="line 2: the tag `include`"):
        ChatTemplate("\n{% include 'x' %}")
    with pytest.raises(TemplateError, match="at least one message"):
        ChatTemplate("x").render([])


def test_values_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(TypeError):
        ChatTemplate("x").render(USER, value={1, 2})


def test_a_message_is_continued() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}<end>{% endfor %}")
    said = [*USER, {"role": "assistant", "content": "It is "}]
    assert template.render(said, continue_final_message=True) == "hi<end>It is "


def test_facts_of_a_template() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{{ style }}{% endfor %}"
        "{% endfor %}"
    )
    assert template.content_format == "openai"
    assert template.undeclared_variables == ["messages", "style"]


def test_other_threads_run_while_a_template_renders() -> None:
    template = ChatTemplate(
        "{% for a in range(1500) %}{% for b in range(300) %}{% if a == b %}{% endif %}"
        "{% endfor %}{% endfor %}"
    )
    finished = threading.Event()

    def work() -> None:
        template.render(USER)
        finished.set()

    worker = threading.Thread(target=work)
    worker.start()
    turns = 0
    while not finished.is_set():
        turns += 1
        time.sleep(0.001)
    worker.join()
    assert turns > 3


def test_against_jinja2_on_random_values() -> None:
    pytest.importorskip("jinja2", reason="jinja2 is the oracle here")
    hypothesis = pytest.importorskip("hypothesis")
    sys.path.insert(0, str(ROOT / "tests" / "golden"))
    try:
        from generate_templates import environment  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    strategies = hypothesis.strategies
    scalar = (
        strategies.none()
        | strategies.booleans()
        | strategies.integers(-(2**100), 2**100)
        | strategies.floats(allow_nan=False)
        | strategies.text(strategies.characters(exclude_categories=["Cs"]))
    )
    values = strategies.recursive(
        scalar,
        lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
        max_leaves=8,
    )
    sources = [
        "{{ a }}",
        "{{ [a] }}",
        "{{ a | tojson }}",
        "{{ a | tojson(indent=2, ensure_ascii=true) }}",
        "{{ a | tojson(sort_keys=true, separators=(',', ':')) }}",
        "{{ a + b }}",
        "{{ a ~ b }}",
        "{{ a == b }}{{ a != b }}",
        "{{ a < b }}",
        "{{ a in b }}",
        "{{ a[b] }}",
        "{{ a[b:] }}",
        "{{ a | length }}",
        "{{ a | string | upper | trim }}",
        "{{ a | string | title }}",
        "{{ '%s|%r' % (a, b) }}",
        "{{ '{}|{!r}'.format(a, b) }}",
        "{% for x in a %}{{ loop.index }}{{ x }};{% else %}none{% endfor %}",
        "{{ a | list }}{{ a | first }}{{ a | last }}",
        "{{ a | dictsort }}",
        "{{ a.items() | list }}",
        "{{ a.split(b) }}",
        "{{ a.strip(b) }}{{ a.find(b) }}{{ a.replace(b, '-') }}{{ a.startswith(b) }}",
        "{{ a | int }}|{{ a | float }}",
        "{{ a | round(1) }}",
        "{{ a | default('d', true) }}{{ a or b }}{{ a and b }}{{ not a }}",
        "{{ a is mapping }}{{ a is sequence }}{{ a is iterable }}",
        "{{ a is number }}{{ a is integer }}{{ a is string }}{{ a is none }}",
        "{{ a | sort }}{{ a | unique | list }}{{ a | max }}{{ a | sum }}",
        "{{ a | indent }}{{ a.splitlines() }}",
    ]
    oracle = environment()
    compiled = {source: (oracle.from_string(source), ChatTemplate(source)) for source in sources}

    def holds(a: Any, b: Any) -> None:
        for source, (theirs, ours) in compiled.items():
            try:
                want: str | None = theirs.render(messages=USER, a=a, b=b)
            except Exception:
                want = None
            if want is not None and " at 0x" in want:
                continue
            try:
                got: str | None = ours.render(USER, a=a, b=b)
            except TemplateError as error:
                # Integers beyond 128 bits can be shown, not computed with.
                if "too large" in str(error):
                    continue
                got = None
            assert got == want, source

    settings = hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)
    settings(hypothesis.given(a=values, b=values)(holds))()


def test_conformance_with_transformers() -> None:
    shared = pathlib.Path(os.environ.get("FASTRENDER_SHARED") or ROOT.parent / "shared")
    script = shared / "conformance" / "run_templates.py"
    if not script.exists():
        pytest.skip("the conformance suite is not beside the repository")
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=55, check=False
    )
    assert run.stdout.splitlines()[-1].endswith("passed, 0 failed"), run.stdout
    assert run.returncode == 0


def test_the_goldens_are_what_the_generator_has() -> None:
    sources = (ROOT / "tests" / "golden" / "templates.txt").read_text(encoding="utf-8")
    listed = sources.removesuffix("\n").split("\n---\n")
    assert [case["source"] for case in GOLDEN["cases"]] == listed
    assert json.dumps(GOLDEN["special_tokens"]) == '{"bos_token": "<s>", "eos_token": "</s>"}'
