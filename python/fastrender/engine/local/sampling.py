"""From logits to tokens, for a whole batch at once.

The order of what is done to logits is vLLM's: allowed ids, forbidden words, least length, biases,
penalties, then temperature, min-p, top-k and top-p. Logprobs are those of the model, before all of
it.
"""

import math
from collections.abc import Sequence

import torch

from fastrender.engine.local.sequence import Candidate, Candidates, Output

# Where every row keeps no more than so many tokens, only those are looked at.
_MOST_TOP = 1_024


def sample(
    logits: torch.Tensor, outputs: Sequence[Output]
) -> tuple[list[int], list[Candidates | None]]:
    """A token for each row of `logits`, float32 `[row, vocabulary]`, and its candidates if asked.

    `logits` are changed.
    """
    asking = [i for i, output in enumerate(outputs) if _asks(output)]
    raw = torch.log_softmax(logits[asking], dim=-1) if asking else None
    for row, output in enumerate(outputs):
        _adjust(logits[row], output)
    tokens = logits.argmax(dim=-1)
    drawing = [i for i, output in enumerate(outputs) if not output.job.params.greedy]
    narrow = [i for i in drawing if 0 < outputs[i].job.params.top_k <= _MOST_TOP]
    wide = sorted(set(drawing) - set(narrow))
    if narrow:
        tokens[narrow] = _draw_narrow(logits[narrow], [outputs[i] for i in narrow])
    if wide:
        tokens[wide] = _draw_wide(logits[wide], [outputs[i] for i in wide])
    chosen: list[int] = tokens.tolist()
    told: list[Candidates | None] = [None] * len(outputs)
    if raw is not None:
        for place, row in enumerate(asking):
            told[row] = _told(raw[place], chosen[row], outputs[row])
    for output, token in zip(outputs, chosen, strict=True):
        if output.counts is not None:
            output.counts[token] += 1
    return chosen, told


def candidates(logprobs: torch.Tensor, token: int, top: Sequence[int] | int) -> list[Candidate]:
    """`token` first, then the `top` likeliest, or the tokens that `top` lists.

    `logprobs` are those of the whole vocabulary. A rank is how many tokens are as likely or more.
    """
    own = logprobs[token]
    found = {token: Candidate(token, float(own), int((logprobs >= own).sum()))}
    if isinstance(top, int):
        count = len(logprobs) if top == -1 else min(top, len(logprobs))
        values, ids = logprobs.topk(count)
        for rank, (value, id) in enumerate(zip(values.tolist(), ids.tolist(), strict=True), 1):
            found.setdefault(id, Candidate(id, value, rank))
        return list(found.values())
    for id in top:
        value = logprobs[id]
        found.setdefault(id, Candidate(id, float(value), int((logprobs >= value).sum())))
    return list(found.values())


def begin(output: Output, device: torch.device, vocab_size: int) -> None:
    """Set up what sampling keeps of a sequence; once, before its first token."""
    params = output.job.params
    if params.seed is not None and not params.greedy:
        output.generator = torch.Generator(device)
        output.generator.manual_seed((params.seed + output.index) % 2**63)
    if params.penalizes:
        prompt = torch.tensor(output.job.prompt, device=device)
        output.seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        output.seen[prompt] = True
        output.counts = torch.zeros(vocab_size, dtype=torch.int32, device=device)


def _asks(output: Output) -> bool:
    params = output.job.params
    return params.logprobs is not None or bool(params.logprob_token_ids)


def _told(logprobs: torch.Tensor, token: int, output: Output) -> list[Candidate]:
    params = output.job.params
    if params.logprob_token_ids:
        return candidates(logprobs, token, params.logprob_token_ids)
    return candidates(logprobs, token, params.logprobs or 0)


def _adjust(logits: torch.Tensor, output: Output) -> None:
    job = output.job
    params = job.params
    if params.allowed_token_ids:
        allowed = torch.tensor(params.allowed_token_ids, device=logits.device)
        kept = logits[allowed]
        logits.fill_(-math.inf)
        logits[allowed] = kept
    if job.bad_words:
        said = output.output
        for word in job.bad_words:
            before = len(word) - 1
            if before <= len(said) and said[len(said) - before :] == list(word[:-1]):
                logits[word[-1]] = -math.inf
    if output.generated < params.min_tokens:
        ends = set(params.stop_token_ids)
        if not params.ignore_eos:
            ends |= job.end_tokens
        known = [token for token in ends if 0 <= token < len(logits)]
        if known:
            logits[known] = -math.inf
    if params.logit_bias:
        ids = list(params.logit_bias)
        logits[ids] += torch.tensor(list(params.logit_bias.values()), device=logits.device)
    if params.penalizes:
        said_before = output.counts > 0
        if params.repetition_penalty != 1:
            penalty = params.repetition_penalty
            weaker = torch.where(logits > 0, logits / penalty, logits * penalty)
            torch.where(output.seen | said_before, weaker, logits, out=logits)
        logits -= params.frequency_penalty * output.counts
        logits -= params.presence_penalty * said_before


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]


def _draw_narrow(logits: torch.Tensor, outputs: Sequence[Output]) -> torch.Tensor:
    sizes = [min(output.job.params.top_k, logits.shape[-1]) for output in outputs]
    values, ids = logits.topk(max(sizes), dim=-1)
    values = _tempered(values, outputs)
    places = torch.arange(values.shape[-1], device=values.device)
    values = values.masked_fill(places >= _column(sizes, values), -math.inf)
    # Sorted already, the likeliest first.
    values = _nucleus(values, outputs)
    return ids.gather(-1, _race(values, outputs, sizes)).squeeze(-1)


def _draw_wide(logits: torch.Tensor, outputs: Sequence[Output]) -> torch.Tensor:
    values = _tempered(logits, outputs)
    size = values.shape[-1]
    tops = [output.job.params.top_k for output in outputs]
    cuts = any(top > 0 for top in tops) or any(out.job.params.top_p < 1 for out in outputs)
    sizes = [size] * len(outputs)
    if not cuts:
        return _race(values, outputs, sizes).squeeze(-1)
    values, ids = values.sort(dim=-1, descending=True, stable=True)
    limits = [top if top > 0 else size for top in tops]
    places = torch.arange(size, device=values.device)
    values = values.masked_fill(places >= _column(limits, values), -math.inf)
    values = _nucleus(values, outputs)
    # Noise goes by token, so that a sequence's draw does not hang on who is beside it.
    unsorted = torch.empty_like(values).scatter_(-1, ids, values)
    return _race(unsorted, outputs, sizes).squeeze(-1)


def _tempered(logits: torch.Tensor, outputs: Sequence[Output]) -> torch.Tensor:
    params = [output.job.params for output in outputs]
    values = logits / _column([param.temperature for param in params], logits)
    if any(param.min_p > 0 for param in params):
        # A share of the likeliest token's probability is a distance below its logit.
        shares = [math.log(param.min_p) if param.min_p > 0 else -math.inf for param in params]
        least = values.amax(dim=-1, keepdim=True) + _column(shares, values)
        values = values.masked_fill(values < least, -math.inf)
    return values


def _nucleus(values: torch.Tensor, outputs: Sequence[Output]) -> torch.Tensor:
    """The likeliest tokens of sorted `values` that together reach top-p."""
    shares = [output.job.params.top_p for output in outputs]
    if all(share >= 1 for share in shares):
        return values
    probabilities = values.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    # The first one is always kept: before it there is nothing.
    return values.masked_fill(before >= _column(shares, values), -math.inf)


def _race(values: torch.Tensor, outputs: Sequence[Output], sizes: Sequence[int]) -> torch.Tensor:
    """A draw by the softmax of `values`: the first to arrive of exponential clocks."""
    probabilities = values.softmax(dim=-1)
    clocks = torch.empty_like(probabilities).exponential_()
    for row, (output, size) in enumerate(zip(outputs, sizes, strict=True)):
        if output.generator is not None:
            clocks[row, :size].exponential_(generator=output.generator)
    return (probabilities / clocks.clamp_min_(1e-30)).argmax(dim=-1, keepdim=True)
