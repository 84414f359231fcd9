"""`sampling_params` of a generate request: what this engine honours, and what it refuses.

Names, defaults and bounds are vLLM's (`sampling_params.py`); keys that it does not know are
ignored, as there.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastrender.errors import RequestError, request_error

GREEDY_TEMPERATURE = 1e-5
_LEAST_TEMPERATURE = 1e-2
_WHERE = "body.sampling_params"
_MOST_STOPS = 1_024
# What would change the tokens, and is not done here.
_REFUSED = (
    "structured_outputs",
    "thinking_token_budget",
    "repetition_detection",
    "watermarking",
    "prompt_logprob_token_ids",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of a request are chosen, and when they end."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    # None where the request says nothing: then all that there is room for.
    max_tokens: int | None = None
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] = ()
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature < GREEDY_TEMPERATURE

    @property
    def penalizes(self) -> bool:
        """Whether tokens that were there before are less likely."""
        return bool(self.presence_penalty or self.frequency_penalty) or self.repetition_penalty != 1


def read(
    values: Mapping[str, Any], *, vocab_size: int, max_logprobs: int, most_sequences: int
) -> SamplingParams:
    """The parameters that `values` hold; `RequestError` for what cannot be, or is not honoured."""
    _refuse(values)
    fields = _Fields(values)
    temperature = fields.number("temperature", 1.0)
    if 0 < temperature < _LEAST_TEMPERATURE:
        temperature = _LEAST_TEMPERATURE
    stop = values.get("stop")
    params = SamplingParams(
        n=fields.count("n", 1),
        temperature=temperature,
        top_p=fields.number("top_p", 1.0),
        top_k=fields.count("top_k", 0),
        min_p=fields.number("min_p", 0.0),
        presence_penalty=fields.number("presence_penalty", 0.0),
        frequency_penalty=fields.number("frequency_penalty", 0.0),
        repetition_penalty=fields.number("repetition_penalty", 1.0),
        seed=_seed(fields.optional_count("seed")),
        stop=(stop,) if isinstance(stop, str) else fields.strings("stop"),
        stop_token_ids=frozenset(fields.ids("stop_token_ids")),
        ignore_eos=fields.flag("ignore_eos", False),
        max_tokens=fields.optional_count("max_tokens"),
        min_tokens=fields.count("min_tokens", 0),
        logprobs=fields.optional_count("logprobs"),
        prompt_logprobs=fields.optional_count("prompt_logprobs"),
        logprob_token_ids=fields.ids("logprob_token_ids"),
        detokenize=fields.flag("detokenize", True),
        skip_special_tokens=fields.flag("skip_special_tokens", True),
        spaces_between_special_tokens=fields.flag("spaces_between_special_tokens", True),
        include_stop_str_in_output=fields.flag("include_stop_str_in_output", False),
        logit_bias=_logit_bias(values.get("logit_bias"), vocab_size),
        allowed_token_ids=fields.ids("allowed_token_ids"),
        bad_words=fields.strings("bad_words"),
    )
    _check(params, values, vocab_size, max_logprobs, most_sequences)
    return params


def malformed(param: str, message: str) -> RequestError:
    """A 400 for a body that is not what the route's schema asks for."""
    return request_error(message, "Bad Request", param, 400)


def refused(message: str, param: str | None = None) -> RequestError:
    """A 400 for what is well formed but cannot be done."""
    return request_error(message, "BadRequestError", param, 400)


def _refuse(values: Mapping[str, Any]) -> None:
    for name in _REFUSED:
        value = values.get(name)
        if name == "structured_outputs" and isinstance(value, dict):
            # What an object without a constraint in it asks for is nothing.
            constraints = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
            value = any(value.get(key) not in (None, False) for key in constraints)
        if value not in (None, False):
            raise refused(
                f"the torch engine does not honour `{name}`; vLLM's engine does (`--engine URL`)",
                name,
            )


def _check(
    params: SamplingParams,
    values: Mapping[str, Any],
    vocab_size: int,
    max_logprobs: int,
    most_sequences: int,
) -> None:
    if params.n < 1:
        raise refused(f"`n` must be at least 1, not {params.n}", "n")
    if params.n > most_sequences:
        raise refused(
            f"`n` must be at most {most_sequences}, the sequences that this engine generates at "
            f"once, not {params.n}",
            "n",
        )
    for name in ("presence_penalty", "frequency_penalty"):
        value = getattr(params, name)
        if not -2 <= value <= 2:
            raise refused(f"`{name}` must be between -2 and 2, not {value}")
    if not math.isfinite(params.repetition_penalty) or params.repetition_penalty <= 0:
        raise refused(
            f"`repetition_penalty` must be finite and above 0, not {params.repetition_penalty}"
        )
    if not 0 <= params.temperature <= 2:
        raise refused(
            f"`temperature` must be between 0 and 2, not {params.temperature}", "temperature"
        )
    if not 0 < params.top_p <= 1:
        raise refused(f"`top_p` must be above 0 and at most 1, not {params.top_p}", "top_p")
    if params.top_k < -1:
        raise refused(f"`top_k` must be -1 or at least 0, not {params.top_k}")
    if not 0 <= params.min_p <= 1:
        raise refused(f"`min_p` must be between 0 and 1, not {params.min_p}")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise refused(f"`max_tokens` must be at least 1, not {params.max_tokens}", "max_tokens")
    least = params.min_tokens
    if least < 0 or (params.max_tokens is not None and least > params.max_tokens):
        raise refused(f"`min_tokens` must be between 0 and `max_tokens`, not {least}")
    for name in ("logprobs", "prompt_logprobs"):
        _check_logprobs(name, getattr(params, name), vocab_size, max_logprobs)
    if len(params.stop) > _MOST_STOPS or len(params.bad_words) > _MOST_STOPS:
        raise refused(f"`stop` and `bad_words` may hold {_MOST_STOPS} strings each")
    if "" in params.stop or "" in params.bad_words:
        raise refused("`stop` and `bad_words` must not hold an empty string")
    if params.greedy and params.n > 1:
        raise refused(f"`n` must be 1 when sampling is greedy (temperature 0), not {params.n}")
    if values.get("allowed_token_ids") is not None and not params.allowed_token_ids:
        raise refused("`allowed_token_ids` must not be empty", "allowed_token_ids")
    for name in ("allowed_token_ids", "logprob_token_ids"):
        if wrong := [token for token in getattr(params, name) if not 0 <= token < vocab_size]:
            raise refused(f"`{name}` holds {wrong[0]}, which is no token of the model's", name)
    if max_logprobs >= 0 and len(params.logprob_token_ids) > max_logprobs:
        raise refused(f"`logprob_token_ids` may hold {max_logprobs} ids", "logprob_token_ids")


def _check_logprobs(name: str, count: int | None, vocab_size: int, most: int) -> None:
    if count is None:
        return
    if count < -1:
        raise refused(f"`{name}` must be -1 or at least 0, not {count}", name)
    asked = vocab_size if count == -1 else count
    if most >= 0 and asked > most:
        raise refused(f"`{name}` may be at most {most} (--max-logprobs), not {count}", name)


def _seed(seed: int | None) -> int | None:
    return None if seed == -1 else seed


def _logit_bias(value: Any, vocab_size: int) -> dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise malformed(f"{_WHERE}.logit_bias", "`logit_bias` must map token ids to numbers")
    biases = {}
    for key, bias in value.items():
        try:
            token = int(key)
        except ValueError:
            raise refused(
                f"`logit_bias` has the key `{key[:40]}`, no token id", "logit_bias"
            ) from None
        if isinstance(bias, bool) or not isinstance(bias, int | float) or math.isnan(bias):
            raise malformed(f"{_WHERE}.logit_bias", "`logit_bias` must map token ids to numbers")
        if not 0 <= token < vocab_size:
            raise refused(f"`logit_bias` has {token}, no token of the model's", "logit_bias")
        biases[token] = min(100.0, max(-100.0, float(bias)))
    return biases


class _Fields:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def _read(self, name: str, kind: str, fits: Callable[[Any], bool]) -> Any:
        value = self._values.get(name)
        if value is not None and not fits(value):
            raise malformed(f"{_WHERE}.{name}", f"`{name}` must be {kind}")
        return value

    def number(self, name: str, default: float) -> float:
        value = self._read(name, "a number", _is_number)
        return default if value is None else float(value)

    def optional_count(self, name: str) -> int | None:
        value: int | None = self._read(name, "an integer of 64 bits", _is_integer)
        return value

    def count(self, name: str, default: int) -> int:
        value = self.optional_count(name)
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        value = self._read(name, "true or false", lambda value: isinstance(value, bool))
        return default if value is None else bool(value)

    def ids(self, name: str) -> tuple[int, ...]:
        value: Sequence[int] | None = self._read(
            name,
            "a list of token ids",
            lambda value: isinstance(value, list) and all(map(_is_integer, value)),
        )
        return tuple(dict.fromkeys(value or ()))

    def strings(self, name: str) -> tuple[str, ...]:
        value: Sequence[str] | None = self._read(
            name,
            "a list of strings",
            lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
        )
        return tuple(dict.fromkeys(value or ()))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**63
