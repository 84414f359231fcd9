"""What a process of `test_metrics` does; apart, so that it starts without a server's modules."""

from fastrender.server.metrics import Layout, Metrics

SLOTS = 3


def layout() -> Layout:
    return Layout(["/a", "/b"], ["chat"], ["cache_hits"])


def count(path: str, slot: int, times: int) -> None:
    metrics = Metrics(layout(), path=path, slot=slot, slots=SLOTS)
    for _ in range(times):
        metrics.render("chat", 0.5)
    metrics.publish(in_flight=1, queued=slot, native={"cache_hits": times})
