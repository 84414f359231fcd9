"""One bounded run of wrk against one server, and what it cost on both sides."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from httpbench.servers import BenchError, Server

_SCRIPT = Path(__file__).with_name("requests.lua")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures of one run; latencies in milliseconds."""

    requests: int
    seconds: float
    p50: float
    p99: float
    server_cpu_seconds: float
    client_cpu_seconds: float
    rss: int
    failures: int

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def cpu_per_request(self) -> float:
        """Microseconds of the server's CPU time for one request."""
        return self.server_cpu_seconds / self.requests * 1e6

    @property
    def client_share(self) -> float:
        """Part of one core that the load client used; it has one thread, so 1 is its limit."""
        return self.client_cpu_seconds / self.seconds


def find_wrk() -> str | None:
    """Where wrk is, if it is installed."""
    return shutil.which("wrk")


def run_wrk(
    server: Server,
    path: str,
    *,
    connections: int,
    seconds: int,
    bodies: Path | None = None,
    first_pass: int = 0,
) -> Measurement:
    """Load `server` for `seconds`: POST what `bodies` holds, or GET `path` when there are none."""
    arguments = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        "60s",
        "-s",
        str(_SCRIPT),
    ]
    arguments += [f"http://127.0.0.1:{server.port}", "--", path]
    if bodies is not None:
        arguments += [str(bodies), str(first_pass)]
    server.check_alive()
    client_before, server_before = _client_cpu(), server.cpu_seconds()
    try:
        output = subprocess.run(
            arguments, capture_output=True, text=True, timeout=seconds + 60, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"wrk did not end in time against {server.name}") from error
    server_after, client_after = server.cpu_seconds(), _client_cpu()
    server.check_alive()
    try:
        figures: dict[str, float] = json.loads(output.stdout.rstrip().rpartition("\n")[2])
    except ValueError as error:
        raise BenchError(
            f"wrk failed against {server.name}: {output.stderr or output.stdout}"
        ) from error
    failures = int(figures["bad_status"] + figures["socket_errors"] + figures["timeouts"])
    if not figures["requests"]:
        raise BenchError(f"{server.name} answered no request within {seconds} s")
    measurement = Measurement(
        requests=int(figures["requests"]),
        seconds=figures["microseconds"] / 1e6,
        p50=figures["p50"] / 1e3,
        p99=figures["p99"] / 1e3,
        server_cpu_seconds=server_after - server_before,
        client_cpu_seconds=client_after - client_before,
        rss=server.rss(),
        failures=failures,
    )
    server.settle(10.0)
    return measurement


def _client_cpu() -> float:
    # Servers are children too, but count only when they have ended, which is never during a run.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
