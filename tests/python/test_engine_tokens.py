"""The torch engine's tokens are transformers' own, however they are batched."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torch_models import (
    PICTURES,
    TorchEngine,
    answers,
    body,
    engine,
    folder,
    generated,
    generated_with,
    picture,
    prompt,
    reference,
    rendered,
    tokens,
    torch,
)

TEXTS = ("tiny", "llama", "mistral", "gemma3", "qwen3_vl", "qwen2_5_vl")
Open = Callable[..., TorchEngine]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    base = tmp_path_factory.mktemp("models")
    return lambda name: folder(name, base)


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens engines, and closes them."""
    running: list[TorchEngine] = []

    def open_engine(model: str, **settings: Any) -> TorchEngine:
        running.append(engine(model, **settings))
        return running[-1]

    yield open_engine
    for each in running:
        assert each.stats()["requests"] == 0
        thread = each._thread
        assert thread is not None
        thread.close()
        assert thread.failure is None


@pytest.mark.parametrize("name", TEXTS)
def test_greedy_tokens_are_those_of_generate(
    name: str, models: Callable[[str], str], opened: Open
) -> None:
    model = models(name)
    running = opened(model)
    for length in (1, 5, 30):
        ids = prompt(length)
        (answer,) = answers(running, body(ids))
        assert tokens(answer) == generated(model, ids, 8)


@pytest.mark.parametrize("name", TEXTS)
def test_a_full_batch_changes_no_tokens(
    name: str, models: Callable[[str], str], opened: Open
) -> None:
    model = models(name)
    # Prompts come in pieces, and more requests than there are rows.
    running = opened(model, max_num_seqs=5, max_num_batched_tokens=24)
    prompts = [prompt(length, seed=1) for length in (1, 40, 3, 17, 64, 9, 2, 33, 25, 7, 12, 50)]
    counts = [3 + i % 5 for i in range(len(prompts))]
    requests = [body(ids, max_tokens=count) for ids, count in zip(prompts, counts, strict=True)]
    for ids, count, answer in zip(prompts, counts, answers(running, *requests), strict=True):
        assert tokens(answer) == generated(model, ids, count)


def test_sequences_that_lose_their_rows_go_on_where_they_were(
    models: Callable[[str], str], opened: Open
) -> None:
    model = models("llama")
    running = opened(model, max_num_seqs=4)
    # Room for two sequences of these lengths, and not for four.
    batch = running._batch
    assert batch is not None
    batch._cache._most_tokens = 256
    prompts = [prompt(length, seed=2) for length in (40, 45, 50, 55)]
    made = answers(running, *(body(ids, max_tokens=60) for ids in prompts))
    for ids, answer in zip(prompts, made, strict=True):
        assert tokens(answer) == generated(model, ids, 60)


@pytest.mark.parametrize("name", PICTURES)
def test_images_give_the_tokens_of_generate(
    name: str, models: Callable[[str], str], opened: Open
) -> None:
    model = models(name)
    running = opened(model, max_num_batched_tokens=16)
    asked = []
    for images in (
        [picture(96, 64)],
        [picture(64, 160, seed=1), picture(130, 70, seed=2)],
        [picture(96, 64), picture(96, 64)],
    ):
        request = rendered(model, images)
        request["sampling_params"] = body([])["sampling_params"]
        (answer,) = answers(running, request)
        expected = generated_with(model, request["token_ids"], images)
        assert tokens(answer) == expected
        asked.append((request, expected))
    texts = [body(prompt(length, seed=3)) for length in (4, 20)]
    together = answers(running, *(request for request, _ in asked), *texts)
    assert [tokens(answer) for answer in together[:3]] == [expected for _, expected in asked]
    for request, answer in zip(texts, together[3:], strict=True):
        assert tokens(answer) == generated(model, request["token_ids"], 8)


def test_the_tower_runs_once_for_each_image(models: Callable[[str], str], opened: Open) -> None:
    running = opened(models("tiny"))
    assert running.media is not None
    tower = running.media._tower
    assert tower is not None
    request = rendered("fastrender/tiny", [picture(64, 64), picture(96, 64)])
    request["sampling_params"] = body([])["sampling_params"]
    first, *others = answers(running, *[request] * 4)
    assert {tuple(tokens(answer)) for answer in others} == {tuple(tokens(first))}
    assert tower.runs == 1


def test_logprobs_are_those_of_the_model(models: Callable[[str], str], opened: Open) -> None:
    model = models("qwen3_vl")
    running = opened(model, max_num_batched_tokens=8)
    ids = prompt(70)
    request = body(ids, max_tokens=3, logprobs=4, prompt_logprobs=2)
    (answer,) = answers(running, request, body(prompt(9)))[:1]
    whole = torch.tensor([ids + tokens(answer)])
    with torch.no_grad():
        logits = reference(model)(whole, attention_mask=torch.ones_like(whole)).logits[0]
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    told = answer["choices"][0]["logprobs"]["content"]
    for place, entry in enumerate(told, start=len(ids) - 1):
        values, best = logprobs[place].topk(4)
        assert [top["token_id"] for top in entry["top_logprobs"]] == best.tolist()
        assert [top["rank"] for top in entry["top_logprobs"]] == [1, 2, 3, 4]
        said = torch.tensor([top["logprob"] for top in entry["top_logprobs"]])
        assert torch.allclose(said, values, atol=1e-4)
    of_prompt = answer["prompt_logprobs"]
    assert len(of_prompt) == len(ids)
    assert of_prompt[0] is None
    for place in range(1, len(ids)):
        entry = of_prompt[place][str(ids[place])]
        expected = logprobs[place - 1, ids[place]]
        assert entry["logprob"] == pytest.approx(float(expected), abs=1e-4)
        assert entry["rank"] == int((logprobs[place - 1] >= expected).sum())
        assert len(of_prompt[place]) in (2, 3)


def test_repetition_penalty_is_that_of_generate(models: Callable[[str], str], opened: Open) -> None:
    model = models("llama")
    running = opened(model)
    ids = prompt(20)
    (answer,) = answers(running, body(ids, max_tokens=20, repetition_penalty=1.5))
    assert tokens(answer) == generated(model, ids, 20, repetition_penalty=1.5)
    assert tokens(answer) != generated(model, ids, 20)
