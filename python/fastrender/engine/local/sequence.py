"""What the batch works on: a sequence of tokens that grows, and what becomes of it."""

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fastrender.engine.local.params import SamplingParams


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A token that might have been taken."""

    token: int
    logprob: float
    # How many tokens are at least as likely.
    rank: int


Candidates: TypeAlias = Sequence[Candidate]


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Where a medium's embeddings stand among the prompt's tokens."""

    offset: int
    length: int
    # `fastrender.engine.local.vision.Embedding`
    embedding: Any
    # Rows and columns of embeddings.
    grid: tuple[int, int]


class Finish(enum.Enum):
    """Why a sequence is over, as the wire says it."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Progress:
    """One step of a sequence: a token, or an end without one."""

    index: int
    token: int | None = None
    candidates: Candidates | None = None
    finish: Finish | None = None
    stop_reason: int | None = None
    # With the first token, for who asked; an entry for each token of the prompt but the first.
    prompt_candidates: Sequence[Candidates] | None = None
    error: BaseException | None = None


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """A request in the batch: `n` sequences of one prompt."""

    prompt: list[int]
    params: SamplingParams
    max_tokens: int
    # End tokens: the first one's end says no reason, the others' say themselves.
    end_token: int | None
    end_tokens: frozenset[int]
    bad_words: Sequence[Sequence[int]] = ()
    spans: Sequence[Span] = ()
    # Called on the batch's thread; must not block.
    deliver: Callable[["Job", list[Progress]], None]
    cancelled: bool = False
    # Outputs that nobody waits for any more.
    ended: set[int] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Output:
    """One of a job's outputs, and where it stands in the batch."""

    job: Job
    index: int
    tokens: list[int]
    # Positions whose keys are in the cache.
    cached: int = 0
    # For sampling; see `sampling`.
    generator: Any = None
    counts: Any = None
    seen: Any = None
    # For M-RoPE; see `positions`.
    axes: Any = None
    shift: int = 0
    prompt_candidates: list[Candidates] = dataclasses.field(default_factory=list)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for it."""
        return self.job.cancelled or self.index in self.job.ended

    @property
    def generated(self) -> int:
        """Tokens that were added to the prompt."""
        return len(self.tokens) - len(self.job.prompt)

    @property
    def output(self) -> list[int]:
        """The tokens that were added."""
        return self.tokens[len(self.job.prompt) :]

    def ends_with(self, token: int) -> tuple[Finish | None, int | None]:
        """Whether `token`, added already, ends this, and the reason that is told."""
        job = self.job
        params = job.params
        if self.generated >= params.min_tokens:
            if token == job.end_token and not params.ignore_eos:
                return Finish.STOP, None
            if token in params.stop_token_ids or (
                token in job.end_tokens and not params.ignore_eos
            ):
                return Finish.STOP, token
        if self.generated >= job.max_tokens:
            return Finish.LENGTH, None
        return None, None
