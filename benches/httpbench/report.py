"""Medians, ratios and tables."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from httpbench.load import Measurement
    from httpbench.servers import Server

# Above this part of a core, wrk may be what is measured.
_CLIENT_LIMIT = 0.85


@dataclass(slots=True)
class ScenarioResult:
    """Rounds of one scenario, by server, in the order in which they were run."""

    name: str
    prompt_tokens: int
    connections: int
    rounds: dict[str, list[Measurement]] = field(default_factory=dict)

    def median(self, server: str, figure: Callable[[Measurement], float]) -> float:
        """The median of a figure over the rounds."""
        return median(figure(measurement) for measurement in self.rounds[server])

    def ratio(self, server: str, peer: str, figure: Callable[[Measurement], float]) -> float:
        """The median over the rounds of `server`'s figure divided by `peer`'s.

        Both are of the same round, so that a slow spell of the machine touches both.
        """
        pairs = zip(self.rounds[server], self.rounds[peer], strict=True)
        return median(figure(own) / max(figure(other), 1e-9) for own, other in pairs)


def scenario_table(results: Iterable[ScenarioResult], subject: str) -> str:
    """A Markdown row for each scenario and server; ratios are `subject`'s figure to the row's."""
    rows = [
        [
            "prompt",
            "server",
            "requests/s",
            "p50",
            "p99",
            "CPU a request",
            f"{subject}: requests/s",
            f"{subject}: CPU",
            "client",
        ]
    ]
    for result in results:
        label = f"{result.name} ({result.prompt_tokens:,} tokens)"
        for server in result.rounds:
            ratios = ["", ""]
            if server != subject and subject in result.rounds:
                ratios = [
                    f"{result.ratio(subject, server, lambda m: m.rate):.2f}x",
                    f"{result.ratio(subject, server, lambda m: m.cpu_per_request):.2f}x",
                ]
            rows.append(
                [
                    label,
                    server,
                    _number(result.median(server, lambda m: m.rate)),
                    f"{_number(result.median(server, lambda m: m.p50))} ms",
                    f"{_number(result.median(server, lambda m: m.p99))} ms",
                    f"{_number(result.median(server, lambda m: m.cpu_per_request))} µs",
                    *ratios,
                    f"{result.median(server, lambda m: m.client_share):.0%}",
                ]
            )
            label = ""
    return _markdown(rows)


def server_table(
    servers: Iterable[Server], health: dict[str, Measurement], results: list[ScenarioResult]
) -> str:
    """Start-up time, memory and the bare rate of the HTTP stack, as Markdown."""
    rows = [
        [
            "server",
            "start to first answer",
            "RSS at start",
            "RSS under load",
            "/health requests/s",
            "client",
        ]
    ]
    for server in servers:
        loaded = [
            measurement.rss for result in results for measurement in result.rounds[server.name]
        ]
        rows.append(
            [
                server.name,
                f"{median(server.start_seconds):.2f} s",
                f"{server.idle_rss / 1e6:.0f} MB",
                f"{max(loaded, default=server.idle_rss) / 1e6:.0f} MB",
                _number(health[server.name].rate),
                f"{health[server.name].client_share:.0%}",
            ]
        )
    return _markdown(rows)


def warnings(results: Iterable[ScenarioResult]) -> list[str]:
    """What makes a figure doubtful."""
    found = []
    for result in results:
        for server, rounds in result.rounds.items():
            failures = sum(measurement.failures for measurement in rounds)
            if failures:
                found.append(
                    f"{result.name}, {server}: {failures} requests failed; its figures mean nothing"
                )
            share = result.median(server, lambda m: m.client_share)
            if share > _CLIENT_LIMIT:
                found.append(
                    f"{result.name}, {server}: wrk used {share:.0%} of a core and may be the limit"
                )
    return found


def as_json(
    results: Iterable[ScenarioResult], servers: Iterable[Server], health: dict[str, Measurement]
) -> dict[str, object]:
    """All that was measured."""
    return {
        "scenarios": [asdict(result) for result in results],
        "servers": [
            {
                "name": server.name,
                "command": server.command,
                "start_seconds": server.start_seconds,
                "idle_rss": server.idle_rss,
                "health": asdict(health[server.name]),
            }
            for server in servers
        ],
    }


def cpu_name() -> str:
    """The processor's name for the report."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _markdown(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
