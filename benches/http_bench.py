"""Compare render servers over HTTP: requests/s, latency, CPU per request, memory, start-up.

Servers run side by side and are loaded in turn, in several rounds; see README.md in this folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

from httpbench.bodies import (
    CHAT_PATH,
    IMAGE_SCENARIOS,
    SCENARIOS,
    Scenario,
    TextSource,
    make_bodies,
    stamped,
    write_records,
)
from httpbench.load import Measurement, find_wrk, run_wrk
from httpbench.report import (
    ScenarioResult,
    as_json,
    cpu_name,
    scenario_table,
    server_table,
    warnings,
)
from httpbench.servers import BenchError, Server

FASTRENDER = (
    "fastrender serve {model} --served-model-name m --host 127.0.0.1 --port {port}"
    " --max-model-len 65536"
)
# Bodies of each scenario whose token ids are compared before anything is timed.
CHECKED_BODIES = 20
# Stamps of bodies that are sent outside of a round; rounds count from PASSES_PER_ROUND on.
START_STAMP, CHECK_STAMP, WARM_UP_PASS = 0xFFFFFE, 0xFFFFFF, 0
PASSES_PER_ROUND = 10_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario with its bodies on disk, and some of them at hand."""

    scenario: Scenario
    file: Path
    samples: list[bytes]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status."""
    options = _parse(arguments)
    if find_wrk() is None:
        print("http_bench: wrk is not installed (Debian: apt-get install wrk)", file=sys.stderr)
        return 2
    # A plain SIGTERM would leave the servers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _run(options)
    except BenchError as error:
        print(f"http_bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [scenario.name for scenario in (*SCENARIOS, *IMAGE_SCENARIOS)]
    add = parser.add_argument
    add("--model", required=True, help="model folder that every server loads")
    add(
        "--fastrender",
        metavar="COMMAND",
        default=FASTRENDER,
        help="how to start it; '' leaves it out (default: %(default)s)",
    )
    add(
        "--vllm",
        metavar="COMMAND",
        default="",
        help="how to start vLLM's Python renderer; may hold {model} and {port}",
    )
    add("--vllm-rs", metavar="COMMAND", default="", help="how to start vLLM's Rust renderer")
    add(
        "--only",
        metavar="NAMES",
        default=",".join(scenario.name for scenario in SCENARIOS),
        help=f"scenarios to run, of {', '.join(names)} (default: %(default)s)",
    )
    add(
        "--seconds",
        type=_bounded(1, 60),
        default=4,
        help="length of one timed run (default: %(default)s)",
    )
    add(
        "--rounds",
        type=_bounded(1, 20),
        default=3,
        help="timed runs of each scenario and server (default: %(default)s)",
    )
    add("--connections", type=_bounded(1, 256), help="connections, instead of 8 (32k: 4)")
    add(
        "--starts",
        type=_bounded(1, 10),
        default=1,
        help="times each server is started to time that (default: %(default)s)",
    )
    add(
        "--start-limit",
        type=_bounded(1, 600),
        default=180,
        help="seconds a server may take to start (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="seed of the bodies' text (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all measurements here")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(names):
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    if not (options.fastrender or options.vllm or options.vllm_rs):
        parser.error("no server to measure")
    return options


def _bounded(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: an integer between two bounds."""

    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not between {low} and {high}")
        return value

    return read


def _run(options: argparse.Namespace) -> int:
    commands = {"fastrender": options.fastrender, "vllm": options.vllm, "vllm-rs": options.vllm_rs}
    with (
        tempfile.TemporaryDirectory(prefix="http-bench-") as folder,
        contextlib.ExitStack() as stack,
    ):
        prepared = _prepare(options, Path(folder))
        servers = [
            stack.enter_context(Server(name, command, Path(folder, f"{name}.log")))
            for name, command in commands.items()
            if command
        ]
        for server in servers:
            _start(server, options, stamped(prepared[0].samples[0], START_STAMP))
        checked = [_check(scenario, servers) for scenario in prepared]
        results = [
            _measure(scenario, tokens, servers, options)
            for scenario, (tokens, _) in zip(prepared, checked, strict=True)
        ]
        health = {server.name: _health(server) for server in servers}
    findings = [finding for _, found in checked for finding in found]
    doubts = warnings(results)
    _report(options, servers, results, health, findings + doubts)
    return 1 if findings or any("failed" in doubt for doubt in doubts) else 0


def _prepare(options: argparse.Namespace, folder: Path) -> list[Prepared]:
    """Write the bodies of each scenario that is to run."""
    prepared = []
    for scenario in (*SCENARIOS, *IMAGE_SCENARIOS):
        if scenario.name not in options.only:
            continue
        chosen = replace(scenario, connections=options.connections or scenario.connections)
        _say(f"making the bodies of {chosen.name}")
        bodies = list(make_bodies(chosen, TextSource(options.seed)))
        file = folder / f"{chosen.name}.bodies"
        write_records(file, bodies)
        step = max(1, len(bodies) // CHECKED_BODIES)
        prepared.append(Prepared(chosen, file, bodies[step // 2 :: step][:CHECKED_BODIES]))
    return prepared


def _start(server: Server, options: argparse.Namespace, body: bytes) -> None:
    for i in range(options.starts):
        if i > 0:
            server.stop()
        _say(f"starting {server.name}")
        server.start(options.model, CHAT_PATH, body, options.start_limit)


def _check(prepared: Prepared, servers: list[Server]) -> tuple[int, list[str]]:
    """Mean prompt tokens of the sampled bodies, and where servers differ in their ids."""
    oracle = next((server.name for server in servers if server.name == "vllm"), servers[0].name)
    lengths, findings = [], []
    for i, sample in enumerate(prepared.samples):
        body = stamped(sample, CHECK_STAMP)
        ids = {server.name: server.token_ids(CHAT_PATH, body) for server in servers}
        expected = ids[oracle]
        lengths.append(len(expected))
        for name, found in ids.items():
            if found != expected:
                place = next(
                    (
                        j
                        for j, pair in enumerate(zip(found, expected, strict=False))
                        if len(set(pair)) > 1
                    ),
                    min(len(found), len(expected)),
                )
                findings.append(
                    f"{prepared.scenario.name}, sample {i}: {name} gives {len(found)} ids and "
                    f"{oracle} {len(expected)}; they part at {place}"
                )
    return round(mean(lengths)), findings


def _measure(
    prepared: Prepared, tokens: int, servers: list[Server], options: argparse.Namespace
) -> ScenarioResult:
    """Warm up, then load the servers in turn, each round in another order."""
    scenario = prepared.scenario
    result = ScenarioResult(
        scenario.name, tokens, scenario.connections, {server.name: [] for server in servers}
    )

    def run(server: Server, seconds: int, first_pass: int) -> Measurement:
        return run_wrk(
            server,
            CHAT_PATH,
            connections=scenario.connections,
            seconds=seconds,
            bodies=prepared.file,
            first_pass=first_pass,
        )

    for server in servers:
        run(server, 1, WARM_UP_PASS)
    for i in range(options.rounds):
        start = i % len(servers)
        for server in servers[start:] + servers[:start]:
            measurement = run(server, options.seconds, (i + 1) * PASSES_PER_ROUND)
            result.rounds[server.name].append(measurement)
            _say(
                f"{scenario.name}, round {i + 1}, {server.name}: "
                f"{measurement.rate:,.1f} requests/s, "
                f"{measurement.cpu_per_request:,.0f} µs of CPU a request"
            )
    return result


def _health(server: Server) -> Measurement:
    """What the HTTP stack alone gives, and wrk with it."""
    return run_wrk(server, "/health", connections=8, seconds=1)


def _report(
    options: argparse.Namespace,
    servers: list[Server],
    results: list[ScenarioResult],
    health: dict[str, Measurement],
    notes: list[str],
) -> None:
    print(
        f"{date.today()}, {os.cpu_count()} x {cpu_name()}, "
        f"{options.rounds} rounds of {options.seconds} s:\n"
    )
    print(f"    {shlex.join(['python', *sys.argv])}\n")
    print(
        scenario_table(results, servers[0].name), server_table(servers, health, results), sep="\n\n"
    )
    for note in notes:
        print(f"\nNote: {note}.")
    if options.json:
        document: dict[str, object] = {
            "date": str(date.today()),
            "command": sys.argv,
            "cpu": cpu_name(),
            "notes": notes,
        }
        document |= as_json(results, servers, health)
        options.json.write_text(
            json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
