"""`Batch`: sequences that are generated side by side, joined and left at any step.

Rows of the cache are kept dense: those that generate first, then the ones whose prompts are being
read. One step reads a piece of the new prompts, and then adds a token to every other sequence, so
that no prompt holds the others up for longer than a piece takes. For one thread.
"""

import collections
import dataclasses
import logging
from collections.abc import Iterable, Sequence

import torch

from fastrender.engine.local import sampling
from fastrender.engine.local.model import Model, Visual
from fastrender.engine.local.positions import axes_of
from fastrender.engine.local.rows import RowCache
from fastrender.engine.local.sequence import Finish, Job, Output, Progress

# Prompt tokens whose whole distributions are looked at together.
_TOLD_AT_ONCE = 64

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, eq=False)
class _Arrival:
    """What waits for rows: a job that is new, or an output that had to give up its row."""

    outputs: list[Output]

    @property
    def job(self) -> Job:
        return self.outputs[0].job


class Batch:
    """All sequences of an engine."""

    def __init__(
        self, model: Model, *, most_rows: int, most_prompt_tokens: int, most_tokens: int
    ) -> None:
        """Generate at most `most_rows` sequences at once.

        `most_prompt_tokens` are read at a step; the cache holds `most_tokens`.
        """
        self._model = model
        self._cache = RowCache(most_tokens)
        self._most_rows = most_rows
        self._most_prompt_tokens = most_prompt_tokens
        self._waiting: collections.deque[_Arrival] = collections.deque()
        # The first `_generating` of them generate; the others' prompts are being read.
        self._rows: list[Output] = []
        self._generating = 0
        # Siblings of rows that are being read, which begin as those do.
        self._siblings: dict[Output, list[Output]] = {}
        # What ended without ever having had a row.
        self._lost: list[tuple[Output, Progress]] = []

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._waiting and not self._rows and not self._lost

    @property
    def running(self) -> int:
        """Sequences that have a row."""
        return len(self._rows) + sum(map(len, self._siblings.values()))

    @property
    def waiting(self) -> int:
        """Requests that have none yet."""
        return len(self._waiting)

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values."""
        return self._cache.nbytes

    def add(self, job: Job) -> None:
        """Take a request."""
        outputs = [Output(job=job, index=i, tokens=list(job.prompt)) for i in range(job.params.n)]
        self._waiting.append(_Arrival(outputs))

    def step(self) -> list[tuple[Job, list[Progress]]]:
        """Go on by a step; what came of it, by request."""
        self._drop_cancelled()
        self._admit()
        said: dict[Job, list[Progress]] = collections.defaultdict(list)
        for output, progress in self._lost:
            said[output.job].append(progress)
        self._lost.clear()
        for work in (self._read, self._generate):
            for output, progress in work():
                said[output.job].append(progress)
        return list(said.items())

    def fail_all(self, error: BaseException) -> list[tuple[Job, list[Progress]]]:
        """Give up everything, after `error`."""
        outputs = [*self._rows]
        for arrival in self._waiting:
            outputs += arrival.outputs
        for siblings in self._siblings.values():
            outputs += siblings
        self._rows, self._generating = [], 0
        self._waiting.clear()
        self._siblings.clear()
        end = [(o.job, Progress(index=o.index, finish=Finish.ERROR, error=error)) for o in outputs]
        return [(job, [progress]) for job, progress in end]

    def _drop_cancelled(self) -> None:
        for arrival in list(self._waiting):
            arrival.outputs = [output for output in arrival.outputs if not output.abandoned]
            if not arrival.outputs:
                self._waiting.remove(arrival)
        for output in [output for output in self._rows if output.abandoned]:
            self._remove(output)

    def _admit(self) -> None:
        """Give rows to who waits, while no prompts are being read."""
        if self._generating < len(self._rows):
            return
        tokens = 0
        while self._waiting:
            arrival = self._waiting[0]
            count = len(arrival.outputs)
            first = arrival.outputs[0]
            free = self._most_rows - self.running
            size = len(first.tokens)
            started = len(self._rows) > self._generating
            # Prompts are read in groups that a step can take, but for one that is longer alone.
            if count > free or (started and tokens + size > self._most_prompt_tokens):
                return
            if started and first.job.params.prompt_logprobs is not None:
                return
            longest = max([size, *(len(output.tokens) for output in self._rows)]) + 1
            if not self._cache.reserve(self.running + count, longest):
                if self._rows:
                    return
                self._split(arrival)
                continue
            self._waiting.popleft()
            tokens += size
            for output in arrival.outputs:
                self._set_up(output)
            self._rows.append(first)
            if count > 1:
                self._siblings[first] = arrival.outputs[1:]
            if first.job.params.prompt_logprobs is not None:
                return

    def _split(self, arrival: _Arrival) -> None:
        """Outputs for which there is no room together wait for it one by one."""
        self._waiting.popleft()
        if len(arrival.outputs) > 1:
            self._waiting.extendleft(_Arrival([output]) for output in reversed(arrival.outputs))
            return
        output = arrival.outputs[0]
        text = f"the cache has no room for a sequence of {len(output.tokens)} tokens"
        self._lost.append(
            (output, Progress(index=output.index, finish=Finish.ERROR, error=MemoryError(text)))
        )

    def _set_up(self, output: Output) -> None:
        if output.generated:
            # It had a row before, and knows all this.
            return
        model = self._model
        sampling.begin(output, model.device, model.vocab_size)
        spans = output.job.spans
        if spans:
            axes, output.shift = axes_of(len(output.job.prompt), spans)
            output.axes = axes.to(model.device)

    def _read(self) -> Iterable[tuple[Output, Progress]]:
        """Read a piece of the new prompts; first tokens of those that are through."""
        reading = self._rows[self._generating :]
        if not reading:
            return []
        most = max(len(output.tokens) - output.cached for output in reading)
        telling = reading[0].job.params.prompt_logprobs is not None
        limit = _TOLD_AT_ONCE if telling else max(1, self._most_prompt_tokens // len(reading))
        width = min(most, limit)
        counts = [min(width, len(output.tokens) - output.cached) for output in reading]
        logits = self._forward(reading, self._generating, counts, width, every=telling)
        if telling:
            self._tell_prompt(reading[0], logits[0, width - counts[0] :])
            logits = logits[:, -1]
        through = []
        for row, (output, count) in enumerate(zip(reading, counts, strict=True)):
            output.cached += count
            if output.cached == len(output.tokens):
                through.append(row)
        return self._begin([reading[row] for row in through], logits[through])

    def _tell_prompt(self, output: Output, logits: torch.Tensor) -> None:
        """Remember how likely the prompt's tokens were."""
        top = output.job.params.prompt_logprobs
        assert top is not None
        prompt = output.job.prompt
        logprobs = torch.log_softmax(logits, dim=-1)
        for i in range(len(logprobs)):
            place = output.cached + i + 1
            if place == len(output.prompt_candidates) + 1 and place < len(prompt):
                told = sampling.candidates(logprobs[i], prompt[place], top)
                output.prompt_candidates.append(told)

    def _begin(
        self, outputs: Sequence[Output], logits: torch.Tensor
    ) -> list[tuple[Output, Progress]]:
        """Move outputs whose prompts were read to those that generate, with their siblings."""
        places = []
        for place, output in enumerate(outputs):
            self._swap(self._rows.index(output), self._generating)
            self._generating += 1
            places.append(place)
        begun = list(outputs)
        for place, output in enumerate(outputs):
            for sibling in self._siblings.pop(output, ()):
                sibling.cached = output.cached
                # Rows of prompts still being read are behind; the first of them makes room.
                self._rows.append(sibling)
                last = len(self._rows) - 1
                self._swap(last, self._generating)
                self._cache.copy(self._rows.index(output), self._generating, output.cached)
                self._generating += 1
                begun.append(sibling)
                places.append(place)
        if not begun:
            return []
        return self._extend(begun, logits[places])

    def _generate(self) -> Iterable[tuple[Output, Progress]]:
        """Add a token to every sequence that generates."""
        if not self._generating:
            return []
        while True:
            outputs = self._rows[: self._generating]
            if not outputs:
                return []
            longest = max(len(output.tokens) for output in self._rows) + 1
            if self._cache.reserve(self.running, longest):
                break
            self._yield_row()
        # What `_begin` has just added a token to takes part too.
        logits = self._forward(outputs, 0, [1] * len(outputs), 1)
        for output in outputs:
            output.cached += 1
        return self._extend(outputs, logits)

    def _yield_row(self) -> None:
        """Take the row of the newest sequence; it waits, and is read anew."""
        if self._generating < len(self._rows):
            output = self._rows[-1]
            outputs = [output, *self._siblings.pop(output, ())]
        else:
            output = self._rows[self._generating - 1]
            outputs = [output]
        _logger.info("the cache is full: a sequence of %d tokens waits", len(output.tokens))
        self._remove(output)
        for each in outputs:
            each.cached = 0
        self._waiting.appendleft(_Arrival(outputs))

    def _extend(
        self, outputs: Sequence[Output], logits: torch.Tensor
    ) -> list[tuple[Output, Progress]]:
        tokens, told = sampling.sample(logits, outputs)
        said = []
        for output, token, candidates in zip(outputs, tokens, told, strict=True):
            output.tokens.append(token)
            finish, reason = output.ends_with(token)
            progress = Progress(
                index=output.index,
                token=token,
                candidates=candidates,
                finish=finish,
                stop_reason=reason,
            )
            if output.generated == 1 and output.job.params.prompt_logprobs is not None:
                progress.prompt_candidates = output.prompt_candidates
            if finish is not None:
                self._remove(output)
            said.append((output, progress))
        return said

    def _forward(
        self,
        outputs: Sequence[Output],
        first_row: int,
        counts: Sequence[int],
        width: int,
        *,
        every: bool = False,
    ) -> torch.Tensor:
        """Logits after the next `counts` tokens of each output, filled up to `width` in front.

        What fills up is written behind the row's end, where the next tokens go over it.
        """
        model = self._model
        ids, places = [], []
        for output, count in zip(outputs, counts, strict=True):
            start, filling = output.cached, width - count
            ids.append([0] * filling + output.tokens[start : start + count])
            behind = range(start + count, start + width)
            places.append([*behind, *range(start, start + count)])
        positions = torch.tensor(places, device=model.device)
        length = max(output.cached for output in outputs) + width
        return model.forward(
            self._cache,
            first_row,
            torch.tensor(ids, device=model.device),
            positions,
            length=length,
            axes=self._axes(outputs, positions),
            visual=self._visual(outputs, counts, width),
            every=every,
        )

    def _axes(self, outputs: Sequence[Output], positions: torch.Tensor) -> torch.Tensor | None:
        if not any(output.job.spans for output in outputs):
            return None
        shifts = torch.tensor([[output.shift] for output in outputs], device=positions.device)
        axes = (positions + shifts).expand(3, *positions.shape).clone()
        for row, output in enumerate(outputs):
            if output.axes is not None and output.cached < output.axes.shape[1]:
                known = positions[row] < output.axes.shape[1]
                axes[:, row, known] = output.axes[:, positions[row, known]]
        return axes

    def _visual(
        self, outputs: Sequence[Output], counts: Sequence[int], width: int
    ) -> Visual | None:
        """The embeddings of media that stand among the tokens of this pass."""
        pieces = []
        mask = None
        for row, (output, count) in enumerate(zip(outputs, counts, strict=True)):
            start, filling = output.cached, width - count
            for span in sorted(output.job.spans, key=lambda span: span.offset):
                low = max(span.offset, start)
                high = min(span.offset + span.length, start + count)
                if low >= high:
                    continue
                if mask is None:
                    mask = torch.zeros(len(outputs), width, dtype=torch.bool)
                mask[row, filling + low - start : filling + high - start] = True
                pieces.append((span.embedding, low - span.offset, high - span.offset))
        if mask is None:
            return None
        device = self._model.device
        layers = len(pieces[0][0].deepstack)
        return Visual(
            mask.to(device),
            torch.cat([e.tokens[low:high].to(device) for e, low, high in pieces]),
            tuple(
                torch.cat([e.deepstack[layer][low:high].to(device) for e, low, high in pieces])
                for layer in range(layers)
            ),
        )

    def _remove(self, output: Output) -> None:
        """Free a row, and close the gap."""
        self._siblings.pop(output, None)
        row = self._rows.index(output)
        if row < self._generating:
            self._generating -= 1
            self._swap(row, self._generating)
            row = self._generating
        self._swap(row, len(self._rows) - 1)
        self._rows.pop()

    def _swap(self, one: int, other: int) -> None:
        if one == other:
            return
        rows = self._rows
        length = max(rows[one].cached, rows[other].cached)
        if length:
            self._cache.swap(one, other, length)
        rows[one], rows[other] = rows[other], rows[one]
