"""What a process of `test_metrics` does; apart, so that it starts without a server's modules."""

from fastrender.server.metrics import Layout, Metrics
from fastrender.server.shared_file import SharedFile

SLOTS = 3


def layout() -> Layout:
    return Layout(["/a", "/b"], ["chat"], ["cache_hits"])


def count(file: SharedFile, slot: int, times: int) -> None:
    metrics = Metrics(layout(), file=file.descriptor, slot=slot, slots=SLOTS)
    for _ in range(times):
        metrics.render("chat", 0.5)
    metrics.publish(in_flight=1, queued=slot, native={"cache_hits": times})
