import math
import multiprocessing
import tempfile

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

import count_in_slot
from fastrender.config import RenderConfig
from fastrender.server.app import Application
from fastrender.server.metrics import FINE_SECONDS, Metrics
from fastrender.server.shared_file import SharedFile
from stand_in import Renderer

Sample = tuple[str, tuple[tuple[str, str], ...]]


def scrape(client: TestClient) -> dict[Sample, float]:
    text = client.get("/metrics").text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_as_the_reference_names_them() -> None:
    client = TestClient(Application(Renderer(), RenderConfig()))
    body = b'{"pad": 10}'
    for _ in range(3):
        client.post("/tokenize", content=body, headers={"content-type": "application/json"})
    client.post("/tokenize", content=b"x", headers={"content-type": "application/json"})
    client.get("/v1/models")
    client.get("/tokenize")
    client.request("BREW", "/nowhere")
    client.get("/health")
    samples = scrape(client)

    def requests(handler: str, method: str, status: str) -> float:
        labels = (("handler", handler), ("method", method), ("status", status))
        return samples.get(("http_requests_total", labels), 0)

    assert requests("/tokenize", "POST", "2xx") == 3
    assert requests("/tokenize", "POST", "4xx") == 1
    assert requests("/tokenize", "GET", "4xx") == 1
    assert requests("/v1/models", "GET", "2xx") == 1
    assert requests("none", "other", "4xx") == 1
    assert not any("/health" in str(sample) or "/metrics" in str(sample) for sample in samples)
    sizes = (("handler", "/tokenize"),)
    assert samples["http_request_size_bytes_count", sizes] == 5
    assert samples["http_request_size_bytes_sum", sizes] == 3 * len(body) + 1
    assert samples["http_request_duration_highr_seconds_count", ()] == 7
    coarse = (("handler", "/tokenize"), ("method", "POST"))
    assert samples["http_request_duration_seconds_count", coarse] == 4
    for bound in ("0.1", "0.5", "1.0", "+Inf"):
        bucket = (("handler", "/tokenize"), ("le", bound), ("method", "POST"))
        assert samples["http_request_duration_seconds_bucket", bucket] == 4
    assert samples["fastrender_render_seconds_count", (("route", "tokenize"),)] == 4
    assert samples["fastrender_cache_hits_total", ()] == 4
    assert samples["fastrender_cache_bytes", ()] == 17
    assert samples["fastrender_requests_in_flight", ()] == 1
    assert samples["fastrender_queue_length", ()] == 0
    assert ("process_resident_memory_bytes", ()) in samples


def test_refusals_are_counted() -> None:
    config = RenderConfig(api_key=("k",), max_request_bytes=10)
    client = TestClient(Application(Renderer(), config))
    client.get("/v1/models")
    client.headers.update({"authorization": "Bearer k"})
    client.post("/tokenize", content=b" " * 11, headers={"content-type": "application/json"})
    samples = scrape(client)
    assert samples["fastrender_refused_requests_total", (("reason", "unauthorized"),)] == 1
    assert samples["fastrender_refused_requests_total", (("reason", "too_large"),)] == 1


def test_the_content_type_is_that_of_prometheus_text() -> None:
    client = TestClient(Application(Renderer(), RenderConfig()))
    for path in ("/metrics", "/metrics/", "/metrics/x"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")


def test_a_duration_falls_into_the_bucket_that_bounds_it() -> None:
    metrics = Metrics(count_in_slot.layout())
    for seconds in (0.01, 0.010001, 61.0):
        metrics.requests_of("/a", "GET").count(200, 0, 0, seconds)
    start = metrics.layout.all_durations
    cells = metrics.sums()[start : start + len(FINE_SECONDS) + 2]
    assert cells[:2] == [1, 1]
    assert cells[len(FINE_SECONDS)] == 1
    assert math.isclose(cells[-1], 61.020001)


def test_processes_add_up_and_a_new_one_counts_on() -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryFile() as file:
        for slots in ([0, 1], [1]):
            processes = [
                context.Process(
                    target=count_in_slot.count, args=(SharedFile(file.fileno()), slot, 100)
                )
                for slot in slots
            ]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
                assert process.exitcode == 0
        layout, slots_of_all = count_in_slot.layout(), count_in_slot.SLOTS
        metrics = Metrics(layout, file=file.fileno(), slot=2, slots=slots_of_all)
    sums = metrics.sums()
    # The last cell before the next histogram is the sum of seconds.
    assert sums[metrics.layout.waits - 1] == 150.0
    assert sums[metrics.layout.in_flight] == 2
    assert sums[metrics.layout.queued] == 1
    assert sums[metrics.layout.native["cache_hits"]] == 200
