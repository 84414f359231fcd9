"""Answers on the embedded model, held against those that vLLM 0.33 gave (`golden/render.json`)."""

import json
import pathlib
from typing import Any

import pytest

from fastrender import Renderer, RequestError
from random_requests import comparable

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "render.json"
ROUTES = {
    "/v1/chat/completions/render": "chat",
    "/v1/completions/render": "completions",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
}


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(served_model_name=["m"])


def answer(renderer: Renderer, route: str, body: bytes) -> Any:
    try:
        return comparable(200, json.loads(renderer.render(route, body)))
    except RequestError as error:
        return comparable(error.status, json.loads(error.body))


def test_answers_equal_the_reference(renderer: Renderer) -> None:
    cases = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
    assert len(cases) > 500
    differing = []
    for case in cases:
        got = answer(renderer, ROUTES[case["path"]], json.dumps(case["body"]).encode())
        # Compared as text too, for the order of keys.
        if got != case["want"] or json.dumps(got) != json.dumps(case["want"]):
            differing.append((case["seed"], case["body"], case["want"], got))
    assert not differing, f"{len(differing)} differ, the first: {differing[0]}"
