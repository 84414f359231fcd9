"""What is drawn, what may not be, and where outputs end."""

import collections
import math
from collections.abc import Iterator
from typing import Any

import pytest

from fastrender.errors import RequestError
from torch_models import (
    Job,
    Output,
    SamplingParams,
    TorchEngine,
    answers,
    body,
    engine,
    prompt,
    renderer,
    sampling,
    tokens,
    torch,
)

TINY = "fastrender/tiny"
DRAWS = 4_000


@pytest.fixture(scope="module")
def running() -> Iterator[TorchEngine]:
    loaded = engine(TINY, max_num_seqs=8)
    yield loaded
    assert loaded._thread is not None
    loaded._thread.close()


def output(index: int = 0, **params: Any) -> Output:
    """An output that is about to get its first token."""
    job = Job(
        prompt=[1, 2],
        params=SamplingParams(**params),
        max_tokens=8,
        end_token=7,
        end_tokens=frozenset([7]),
        deliver=lambda job, progress: None,
    )
    made = Output(job=job, index=index, tokens=[1, 2])
    sampling.begin(made, torch.device("cpu"), 12)
    return made


def logits() -> Any:
    return torch.tensor([1.0, 3.0, -1.0, 2.5, 0.0, 2.0, 1.5, -2.0, 0.5, 2.8, -0.5, 1.2])


def shares(**params: Any) -> dict[int, float]:
    """How often each token is drawn."""
    torch.manual_seed(11)
    outputs = [output(**params) for _ in range(DRAWS)]
    drawn, _ = sampling.sample(logits().repeat(DRAWS, 1), outputs)
    return {token: count / DRAWS for token, count in collections.Counter(drawn).items()}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 4},
        {"top_p": 0.7},
        {"top_k": 6, "top_p": 0.8},
        {"min_p": 0.3},
        {"temperature": 0.7, "top_p": 0.9, "min_p": 0.1, "top_k": 5},
        {"top_k": -1, "top_p": 0.01},
    ],
)
def test_draws_follow_the_distribution_that_transformers_makes(params: dict[str, Any]) -> None:
    from transformers import (
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    scores = logits()[None]
    scores = TemperatureLogitsWarper(float(params.get("temperature", 1.0)))(None, scores)
    if params.get("min_p"):
        scores = MinPLogitsWarper(params["min_p"])(None, scores)
    if params.get("top_k", 0) > 0:
        scores = TopKLogitsWarper(params["top_k"])(None, scores)
    if params.get("top_p", 1.0) < 1:
        scores = TopPLogitsWarper(params["top_p"])(None, scores)
    expected = scores.softmax(-1)[0].tolist()
    found = shares(**params)
    for token, share in enumerate(expected):
        # Five standard deviations of so many draws.
        slack = 5 * math.sqrt(share * (1 - share) / DRAWS) + 1e-9
        assert abs(found.get(token, 0.0) - share) <= slack, (token, share, found)


def test_penalties_are_those_of_openai_and_vllm() -> None:
    made = output(
        temperature=0.0, presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0
    )
    made.counts[3] = 2
    values = logits()
    sampling.sample(values[None], [made])
    expected = logits()
    for token in (1, 2, 3):
        expected[token] = expected[token] / 2 if expected[token] > 0 else expected[token] * 2
    expected[3] -= 0.5 + 2 * 0.25
    assert torch.allclose(values, expected)


def test_the_sampled_token_comes_first_with_its_own_rank() -> None:
    values = torch.tensor([0.0, 2.0, 2.0, 1.0])
    told = sampling.candidates(torch.log_softmax(values, 0), 2, 2)
    assert [(candidate.token, candidate.rank) for candidate in told] == [(2, 2), (1, 1)]
    told = sampling.candidates(torch.log_softmax(values, 0), 0, [3])
    assert [(candidate.token, candidate.rank) for candidate in told] == [(0, 4), (3, 3)]


def test_a_seed_gives_the_same_tokens_alone_and_among_others(running: TorchEngine) -> None:
    for more in ({}, {"top_k": 30}, {"top_p": 0.8}):
        seeded = body(prompt(7), temperature=1.0, seed=5, **more)
        (alone,) = answers(running, seeded)
        others = [body(prompt(n), temperature=1.0, top_k=50) for n in (3, 9, 12)]
        first, *_ = answers(running, seeded, *others)
        assert tokens(first) == tokens(alone)
        (other,) = answers(running, body(prompt(7), temperature=1.0, seed=6, **more))
        assert tokens(other) != tokens(alone)


def test_siblings_are_different_and_begin_as_one_would_alone(running: TorchEngine) -> None:
    (three,) = answers(running, body(prompt(7), temperature=1.0, seed=5, n=3))
    made = [tokens(three, choice) for choice in range(3)]
    assert len({tuple(ids) for ids in made}) == 3
    assert [choice["index"] for choice in three["choices"]] == [0, 1, 2]
    alone = answers(running, *(body(prompt(7), temperature=1.0, seed=5 + i) for i in range(3)))
    assert made == [tokens(answer) for answer in alone]
    assert three["usage"]["completion_tokens"] == 24


def test_allowed_biased_and_forbidden_tokens(running: TorchEngine) -> None:
    (free,) = answers(running, body(prompt(6)))
    first = tokens(free)[0]
    allowed, biased, banned = answers(
        running,
        body(prompt(6), allowed_token_ids=[9, 10]),
        body(prompt(6), logit_bias={"77": 100}),
        body(prompt(6), logit_bias={str(first): -100}),
    )
    assert set(tokens(allowed)) <= {9, 10}
    assert tokens(biased) == [77] * 8
    assert first not in tokens(banned)


def test_forbidden_words_do_not_come(running: TorchEngine) -> None:
    (free,) = answers(running, {**body(prompt(6)), "output_mode": "text"})
    own = renderer(TINY)
    words = {token: own.detokenize({"tokens": [token]})["prompt"] for token in tokens(free)}
    # One that is a word alone, as the request will have it read.
    token, word = next(
        (token, word)
        for token, word in words.items()
        if word and own.tokenize({"prompt": word, "add_special_tokens": False})["tokens"] == [token]
        if not word.startswith(" ")
    )
    (without,) = answers(running, {**body(prompt(6), bad_words=[word]), "output_mode": "text"})
    assert token not in tokens(without)
    # Of a word of several tokens only the last is forbidden, and only after the others.
    pair = tokens(free)[:2]
    text = own.detokenize({"tokens": pair})["prompt"]
    if own.tokenize({"prompt": text, "add_special_tokens": False})["tokens"] == pair:
        (without,) = answers(running, body(prompt(6), bad_words=[text]))
        assert tokens(without)[0] == pair[0]
        assert tokens(without)[1] != pair[1]


def test_ends(running: TorchEngine) -> None:
    (free,) = answers(running, body(prompt(6)))
    third = tokens(free)[2]
    place = tokens(free).index(third)
    stopped, ended, named, kept = answers(
        running,
        body(prompt(6), stop_token_ids=[third]),
        body(prompt(6), logit_bias={"4098": 100}, ignore_eos=False),
        body(prompt(6), logit_bias={"4096": 100}, ignore_eos=False),
        body(prompt(6), logit_bias={"4098": 50}, ignore_eos=False, min_tokens=4),
    )
    found = [(c["finish_reason"], c["stop_reason"]) for a in (stopped, ended, named, kept)
             for c in a["choices"]]  # fmt: skip
    assert found == [("stop", third), ("stop", None), ("stop", 4096), ("stop", None)]
    assert tokens(stopped) == tokens(free)[: place + 1]
    assert tokens(ended) == [4098]
    assert len(tokens(kept)) == 5
    assert 4098 not in tokens(kept)[:4]


@pytest.mark.parametrize("mode", ["tokens", "text", "derender"])
def test_stop_strings_end_the_text_before_them(running: TorchEngine, mode: str) -> None:
    request = {**body(prompt(6), max_tokens=30), "output_mode": "text"}
    (free,) = answers(running, request)
    text = free["choices"][0]["text"]
    stop = text[9:12]
    cut = text[: text.index(stop)]
    asked = {**body(prompt(6), max_tokens=30, stop=["never said", stop]), "output_mode": mode}
    asked["parse_context"] = {}
    (answer,) = answers(running, asked)
    choice = answer["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    made = choice["token_ids"]
    assert made == tokens(free)[: len(made)]
    assert len(made) < 30
    if mode == "text":
        assert choice["text"] == cut
    if mode == "derender":
        assert choice["message"]["content"] == cut
    # No token more than were needed to say it.
    said = renderer(TINY).detokenize({"tokens": made[:-1]})["prompt"]
    assert stop not in said


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 9, "temperature": 1}, "n"),
        ({"n": 2}, None),
        ({"temperature": -1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": "hot"}, "body.sampling_params.temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, None),
        ({"min_p": 2}, None),
        ({"presence_penalty": 3}, None),
        ({"repetition_penalty": 0}, None),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 9}, None),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": -2}, "prompt_logprobs"),
        ({"stop": [""]}, None),
        ({"bad_words": [""]}, None),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [4160]}, "allowed_token_ids"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"structured_outputs": {"json": {}}}, "structured_outputs"),
        ({"thinking_token_budget": 4}, "thinking_token_budget"),
        ({"seed": 2**64}, "body.sampling_params.seed"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    running: TorchEngine, changes: dict[str, Any], param: str | None
) -> None:
    with pytest.raises(RequestError) as caught:
        answers(running, body(prompt(3), **changes))
    assert (caught.value.status, caught.value.param) == (400, param)
    assert running.stats()["requests"] == 0
