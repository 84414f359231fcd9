"""Sums of `metrics` as Prometheus text."""

import itertools
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from fastrender.server.metrics import (
    COARSE_SECONDS,
    FINE_SECONDS,
    RENDER_SECONDS,
    STATUSES,
    Layout,
    Metrics,
)

# What the native renderer counts; its other statistics are sizes, which also shrink.
_COUNTED = ("hits", "misses", "evictions", "insertions", "requests", "lookups")


class Exposition:
    """The registry that `/metrics` prints."""

    def __init__(self, metrics: Metrics, *, alone: bool) -> None:
        """Process metrics are exposed only when one process is all: they cannot be added up."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Sums(metrics))
        if alone:
            ProcessCollector(registry=self._registry)
            PlatformCollector(registry=self._registry)
            GCCollector(registry=self._registry)

    def text(self) -> tuple[bytes, str]:
        """The text and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _Sums(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        layout, cells = self._metrics.layout, self._metrics.sums()
        yield from _http(layout, cells)
        yield from _rendering(layout, cells)
        for name, cell in layout.native.items():
            text = f"Statistic `{name}` of the native renderer."
            counted = name.endswith(_COUNTED)
            family = CounterMetricFamily if counted else GaugeMetricFamily
            yield family(f"fastrender_{name}", text, value=cells[cell])


def _http(layout: Layout, cells: Sequence[float]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "http_requests",
        "Requests by handler, method and status.",
        labels=["handler", "method", "status"],
    )
    durations = HistogramMetricFamily(
        "http_request_duration_seconds",
        "Seconds from a request's head to its answer, by handler and method.",
        labels=["handler", "method"],
    )
    for key, start in layout.requests.items():
        counts = cells[start : start + len(STATUSES)]
        for status, count in zip(STATUSES, counts, strict=True):
            if count:
                requests.add_metric([*key, status], count)
        if any(counts):
            _add(durations, key, cells, layout.durations[key], COARSE_SECONDS)
    yield requests
    yield durations
    every = HistogramMetricFamily(
        "http_request_duration_highr_seconds", "Seconds from a request's head to its answer."
    )
    _add(every, (), cells, layout.all_durations, FINE_SECONDS)
    yield every
    for name, text, starts in (
        ("http_request_size_bytes", "Bytes of request bodies.", layout.request_bytes),
        ("http_response_size_bytes", "Bytes of answers' bodies.", layout.response_bytes),
    ):
        sizes = SummaryMetricFamily(name, f"{text[:-1]}, by handler.", labels=["handler"])
        for handler, start in starts.items():
            if cells[start]:
                sizes.add_metric([handler], int(cells[start]), cells[start + 1])
        yield sizes


def _rendering(layout: Layout, cells: Sequence[float]) -> Iterator[Metric]:
    renders = HistogramMetricFamily(
        "fastrender_render_seconds", "Seconds of native work, by route.", labels=["route"]
    )
    for route, start in layout.renders.items():
        _add(renders, (route,), cells, start, RENDER_SECONDS)
    yield renders
    waits = HistogramMetricFamily(
        "fastrender_queue_wait_seconds", "Seconds that large requests waited for a thread."
    )
    _add(waits, (), cells, layout.waits, RENDER_SECONDS)
    yield waits
    refusals = CounterMetricFamily(
        "fastrender_refused_requests", "Requests refused before any work.", labels=["reason"]
    )
    for reason, cell in layout.refusals.items():
        refusals.add_metric([reason], cells[cell])
    yield refusals
    gone = CounterMetricFamily(
        "fastrender_lost_clients", "Clients that went away before an answer.", labels=["stage"]
    )
    for stage, cell in layout.gone.items():
        gone.add_metric([stage], cells[cell])
    yield gone
    yield GaugeMetricFamily(
        "fastrender_requests_in_flight", "Requests under way.", value=cells[layout.in_flight]
    )
    yield GaugeMetricFamily(
        "fastrender_queue_length", "Requests that wait for a thread.", value=cells[layout.queued]
    )


def _add(
    family: HistogramMetricFamily,
    labels: Sequence[str],
    cells: Sequence[float],
    start: int,
    bounds: Sequence[float],
) -> None:
    """Add the histogram at `start`: a count a bucket, then their sum of values."""
    names = [*map(str, bounds), "+Inf"]
    counts = itertools.accumulate(cells[start : start + len(names)])
    buckets = list(zip(names, counts, strict=True))
    family.add_metric(list(labels), buckets=buckets, sum_value=cells[start + len(names)])
