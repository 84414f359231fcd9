"""Which of several engines gets a request.

What an engine has read before, it need not read again. So a request goes where a prompt went that
begins as its own does, unless that engine has much more to do than the others; others go to the one
with the least to do.

What was sent where is kept by the beginnings of prompts, at lengths that double: a conversation's
next turn finds the last one, whatever came in between. Nothing here knows tokens: prompts are told
apart by the text of their ids in the request's JSON, which begins alike where the ids do.
"""

import collections
import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterator, Sequence

from fastrender.engine.interface import EngineError

_IDS = re.compile(rb'"token_ids"\s*:\s*\[([0-9,\s]*)')
# About a dozen tokens: less tells nothing but the template.
_SHORTEST = 64
_LONGEST = 256 << 10
# A beginning that is less of both prompts than this is chance, and not worth waiting for.
_LEAST_SHARE = 0.25
_ENTRIES = 1 << 16
# How much more than its share an engine may have to do, and still get what it has read before.
_OVERLOAD = 1.25
_SLACK = 8
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0


@dataclasses.dataclass(slots=True, eq=False)
class Backend:
    """One engine: what it has to do, and whether it answers."""

    url: str
    load: int = 0
    down: bool = False
    failures: int = 0

    @property
    def pause(self) -> float:
        """Seconds until it is asked again whether it answers."""
        return float(min(_FIRST_PAUSE * 2 ** min(self.failures - 1, 16), _LONGEST_PAUSE))

    def failed(self) -> None:
        """It did not answer."""
        self.down = True
        self.failures += 1

    def answered(self) -> None:
        """It did."""
        self.down = False
        self.failures = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Beginning:
    """A digest of a prompt's first `size` bytes."""

    size: int
    digest: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """The beginnings of a prompt, shortest first, at least one, and the size of all of it."""

    beginnings: Sequence[Beginning]
    size: int

    @classmethod
    def of(cls, body: bytes) -> "Prompt":
        """That of a generate request."""
        found = _IDS.search(body)
        text = found[1] if found else b""
        beginnings = []
        hashed = 0
        hasher = hashlib.blake2b(digest_size=16)
        end = _SHORTEST
        while end <= min(len(text), _LONGEST):
            hasher.update(text[hashed:end])
            beginnings.append(Beginning(end, hasher.digest()))
            hashed, end = end, end * 2
        if not beginnings:
            hasher.update(text)
            beginnings.append(Beginning(len(text), hasher.digest()))
        return cls(beginnings, len(text))


class Balancer:
    """Chooses among engines; for one event loop."""

    def __init__(self, urls: Sequence[str], *, most: int) -> None:
        """At most `most` requests go to one engine at once."""
        self.backends = [Backend(url) for url in dict.fromkeys(urls)]
        self._most = most
        self._seen: collections.OrderedDict[bytes, tuple[Backend, int]] = collections.OrderedDict()

    def choose(self, prompt: Prompt, *, avoid: Backend | None = None) -> Backend:
        """The engine for a prompt, another than `avoid` if there is one.

        Raises `EngineError` where none can take it.
        """
        up = [backend for backend in self.backends if not backend.down and backend is not avoid]
        if not up and avoid is not None:
            up = [avoid]
        if not up:
            raise EngineError(503, "no engine answers", headers=[(b"retry-after", b"1")])
        free = [backend for backend in up if backend.load < self._most]
        if not free:
            text = "the engines have as many requests as they may"
            raise EngineError(503, text, headers=[(b"retry-after", b"1")])
        chosen = self._known(prompt, free) or min(free, key=lambda one: self._rank(prompt, one))
        self._remember(prompt, chosen)
        return chosen

    @contextlib.contextmanager
    def working(self, backend: Backend) -> Iterator[None]:
        """While the block runs, `backend` has a request more to do."""
        backend.load += 1
        try:
            yield
        finally:
            backend.load -= 1

    def _known(self, prompt: Prompt, free: Sequence[Backend]) -> Backend | None:
        for beginning in reversed(prompt.beginnings):
            backend, size = self._seen.get(beginning.digest, (None, 0))
            if backend is None or backend not in free:
                continue
            if beginning.size < _LEAST_SHARE * min(size, prompt.size):
                continue
            share = sum(one.load for one in free) / len(free)
            return backend if backend.load <= _OVERLOAD * share + _SLACK else None
        return None

    def _rank(self, prompt: Prompt, backend: Backend) -> tuple[int, bytes]:
        """The least to do; among equals, in an order that every process has for a prompt."""
        key = prompt.beginnings[0].digest + backend.url.encode()
        return backend.load, hashlib.blake2b(key, digest_size=8).digest()

    def _remember(self, prompt: Prompt, backend: Backend) -> None:
        for beginning in prompt.beginnings:
            self._seen[beginning.digest] = backend, prompt.size
            self._seen.move_to_end(beginning.digest)
        while len(self._seen) > _ENTRIES:
            self._seen.popitem(last=False)
