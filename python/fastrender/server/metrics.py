"""Counting what the server does, cheaply and over several processes.

Every counter is a cell of one array of doubles whose layout follows from the routes alone. With
one process the array is plain memory; with several it is a file that they all map, a slot each, and
whoever answers `/metrics` adds the slots up. `exposition` turns sums into Prometheus families.
"""

import bisect
import itertools
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

# The buckets that vLLM's server has (those of prometheus-fastapi-instrumentator).
COARSE_SECONDS: Final = (0.1, 0.5, 1.0)
FINE_SECONDS: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
    *(5.0, 7.5, 10.0, 30.0, 60.0),
)
RENDER_SECONDS: Final = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    *(0.5, 1.0, 2.5, 5.0, 10.0),
)
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "other")
STATUSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")
REFUSALS: Final = ("queue_full", "memory_full", "too_large", "too_slow", "draining", "unauthorized")
GONE_STAGES: Final = ("reading", "queued", "generating")
OTHER_HANDLER: Final = "none"
_CELL_BYTES = 8

Cells: TypeAlias = "memoryview[float]"


class Layout:
    """Where each counter's cells begin."""

    def __init__(
        self, handlers: Iterable[str], routes: Iterable[str], stats: Iterable[str]
    ) -> None:
        """Lay out cells for HTTP handlers, native routes and statistics of the native renderer."""
        self.handlers = (*dict.fromkeys(handlers), OTHER_HANDLER)
        self.routes = tuple(routes)
        self.stats = tuple(stats)
        self._size = 0
        self.requests = {
            key: self._take(len(STATUSES)) for key in itertools.product(self.handlers, METHODS)
        }
        self.durations = {key: self._take_histogram(COARSE_SECONDS) for key in self.requests}
        self.request_bytes = {handler: self._take(2) for handler in self.handlers}
        self.response_bytes = {handler: self._take(2) for handler in self.handlers}
        self.all_durations = self._take_histogram(FINE_SECONDS)
        self.renders = {route: self._take_histogram(RENDER_SECONDS) for route in self.routes}
        self.waits = self._take_histogram(RENDER_SECONDS)
        self.refusals = {reason: self._take(1) for reason in REFUSALS}
        self.gone = {stage: self._take(1) for stage in GONE_STAGES}
        self.in_flight = self._take(1)
        self.queued = self._take(1)
        self.native = {name: self._take(1) for name in self.stats}

    @property
    def cells(self) -> int:
        """Cells of one process."""
        return self._size

    def _take(self, cells: int) -> int:
        start, self._size = self._size, self._size + cells
        return start

    def _take_histogram(self, buckets: Sequence[float]) -> int:
        """A cell for each bucket, one for what is beyond them, one for the sum."""
        return self._take(len(buckets) + 2)


class Metrics:
    """One process's counters, and the sums over all processes."""

    def __init__(
        self, layout: Layout, *, file: int | None = None, slot: int = 0, slots: int = 1
    ) -> None:
        """Count in memory, or in slot `slot` of the open file that all processes map."""
        self.layout = layout
        size = slots * layout.cells * _CELL_BYTES
        if file is None:
            shared: bytearray | mmap.mmap = bytearray(size)
        else:
            # Every process sets the same size, so the order in which they come does not matter.
            os.ftruncate(file, size)
            shared = mmap.mmap(file, size)
        self._all = memoryview(shared).cast("d")
        self.cells: Cells = self._all[slot * layout.cells : (slot + 1) * layout.cells]
        # A process that takes over a slot counts on, but nothing is under way in it.
        self.cells[layout.in_flight] = self.cells[layout.queued] = 0.0

    def requests_of(self, handler: str, method: str) -> "RequestCounter":
        """What counts the requests of a handler and a method of the layout."""
        return RequestCounter(self, handler, method)

    def render(self, route: str, seconds: float) -> None:
        """Count a call of the native renderer."""
        observe(self.cells, self.layout.renders[route], RENDER_SECONDS, seconds)

    def wait(self, seconds: float) -> None:
        """Count a wait for a thread."""
        observe(self.cells, self.layout.waits, RENDER_SECONDS, seconds)

    def refuse(self, reason: str) -> None:
        """Count a request refused for one of `REFUSALS`."""
        self.cells[self.layout.refusals[reason]] += 1.0

    def lose(self, stage: str) -> None:
        """Count a client that went away at one of `GONE_STAGES`."""
        self.cells[self.layout.gone[stage]] += 1.0

    def publish(self, *, in_flight: int, queued: int, native: Mapping[str, int]) -> None:
        """Set what is a state and no count."""
        self.cells[self.layout.in_flight] = in_flight
        self.cells[self.layout.queued] = queued
        for name, cell in self.layout.native.items():
            self.cells[cell] = native.get(name, 0)

    def sums(self) -> list[float]:
        """Every cell, added up over all processes."""
        size = self.layout.cells
        slots = [self._all[start : start + size] for start in range(0, len(self._all), size)]
        return [sum(values) for values in zip(*slots, strict=True)]


class RequestCounter:
    """Counts the answered requests of one handler and method."""

    def __init__(self, metrics: Metrics, handler: str, method: str) -> None:
        """Look up the cells once, since counting is part of every request's time."""
        layout = metrics.layout
        self._cells = metrics.cells
        self._statuses = layout.requests[handler, method] - 1
        self._durations = layout.durations[handler, method]
        self._all_durations = layout.all_durations
        self._request_bytes = layout.request_bytes[handler]
        self._response_bytes = layout.response_bytes[handler]

    def count(self, status: int, request_bytes: int, response_bytes: int, seconds: float) -> None:
        """Count one."""
        cells = self._cells
        cells[self._statuses + status // 100] += 1.0
        observe(cells, self._durations, COARSE_SECONDS, seconds)
        observe(cells, self._all_durations, FINE_SECONDS, seconds)
        cell = self._request_bytes
        cells[cell] += 1.0
        cells[cell + 1] += request_bytes
        cell = self._response_bytes
        cells[cell] += 1.0
        cells[cell + 1] += response_bytes


def observe(cells: Cells, start: int, buckets: Sequence[float], value: float) -> None:
    """Add `value` to the histogram at `start`."""
    cells[start + bisect.bisect_left(buckets, value)] += 1.0
    cells[start + len(buckets) + 1] += value
