"""Encode, prefill and decode on workers of their own; and what may go wrong between them."""

import asyncio
import contextlib
import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from fastrender.engine.interface import EngineError
from fastrender.errors import RequestError
from folders import ROOT
from live import Server, client, serving
from torch_models import (
    Embedding,
    TorchEngine,
    answers,
    body,
    engine,
    generated_with,
    picture,
    post,
    rendered,
    store,
    tokens,
    torch,
    transfer,
)

TINY = "fastrender/tiny"
COMMAND = ("-m", "fastrender", "serve")
ENGINE = ("--engine", "torch", "--enable-scale-out")
GENERATE = "/inference/v1/generate"


def encode_body(request: dict[str, Any]) -> dict[str, Any]:
    features = {k: request["features"][k] for k in ("mm_hashes", "mm_placeholders", "kwargs_data")}
    params = {"max_tokens": 1}
    return {"token_ids": request["token_ids"], "features": features, "sampling_params": params}


def prefill_body(request: dict[str, Any], ec: Any, **params: Any) -> dict[str, Any]:
    features = {k: request["features"][k] for k in ("mm_hashes", "mm_placeholders", "mm_metadata")}
    made = body(request["token_ids"], **params)
    return {**made, "features": features, "ec_transfer_params": ec}


@contextlib.contextmanager
def worker(role: str, *flags: str) -> Iterator[Server]:
    with serving(*ENGINE, "--role", role, *flags, command=COMMAND, OMP_NUM_THREADS="1") as server:
        yield server


@pytest.fixture(scope="module")
def encoder() -> Iterator[Server]:
    with worker("encode", "--ec-token", "secret") as server:
        yield server


@pytest.fixture(scope="module")
def prefiller() -> Iterator[Server]:
    with worker("prefill-decode", "--ec-token", "secret", "--ec-timeout", "1.5") as server:
        yield server


@pytest.fixture(scope="module")
def request_of_two() -> dict[str, Any]:
    return rendered(TINY, [picture(96, 64), picture(64, 130, seed=1)])


@pytest.fixture(scope="module")
def expected(request_of_two: dict[str, Any]) -> list[int]:
    images = [picture(96, 64), picture(64, 130, seed=1)]
    return generated_with(TINY, request_of_two["token_ids"], images)


@pytest.fixture
def http(encoder: Server, prefiller: Server) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with client(encoder) as encode, client(prefiller) as prefill:
        yield encode, prefill


@pytest.mark.timeout(180)
def test_the_example_gives_the_tokens_of_one_process_with_everything(
    encoder: Server, prefiller: Server, tmp_path: Any
) -> None:
    image = picture(120, 90, seed=5)
    path = tmp_path / "picture.png"
    image.save(path)
    with serving(command=COMMAND) as render, worker("all") as whole:
        found = []
        for encode, prefill in ((encoder, prefiller), (whole, whole)):
            run = subprocess.run(
                [
                    *(sys.executable, str(ROOT / "examples" / "disaggregated.py"), str(path)),
                    *("--render", render.url, "--encode", encode.url, "--prefill", prefill.url),
                    *("--max-tokens", "12"),
                ],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert run.returncode == 0, run.stderr
            found.append(json.loads(run.stdout.splitlines()[0])["token_ids"])
    assert found[0] == found[1]
    request = rendered(TINY, [image], "What is in this image?")
    expected = generated_with(TINY, request["token_ids"], [image])
    assert found[0][: len(expected)] == expected[: len(found[0])]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("shared", [True, False])
def test_embeddings_travel_through_shared_memory_and_over_http(
    shared: bool,
    http: tuple[httpx.Client, httpx.Client],
    request_of_two: dict[str, Any],
    expected: list[int],
) -> None:
    encode, prefill = http
    answer = encode.post(GENERATE, json=encode_body(request_of_two)).json()
    assert answer["choices"][0]["token_ids"] == []
    ec = answer["ec_transfer_params"]
    assert [item["mm_hash"] for item in ec["ec_items"]] == request_of_two["features"]["mm_hashes"][
        "image"
    ]
    for item in ec["ec_items"]:
        assert item["shared_name"] is not None
        if not shared:
            item["shared_name"] = None
    made = prefill.post(GENERATE, json=prefill_body(request_of_two, ec))
    assert made.status_code == 200, made.text
    assert tokens(made.json()) == expected


@pytest.mark.timeout(120)
def test_legacy_clients_send_pixels_and_their_metadata_is_ignored(
    http: tuple[httpx.Client, httpx.Client],
    request_of_two: dict[str, Any],
    expected: list[int],
) -> None:
    request = {**body(request_of_two["token_ids"]), "features": dict(request_of_two["features"])}
    request["features"]["mm_metadata"] = {"image": ["AAAA", "AAAA"]}
    assert tokens(http[1].post(GENERATE, json=request).json()) == expected


@pytest.mark.timeout(120)
def test_items_without_a_source_are_refused(
    http: tuple[httpx.Client, httpx.Client], request_of_two: dict[str, Any]
) -> None:
    encode, prefill = http
    nothing: tuple[Any, ...] = (None, {})
    for ec in nothing:
        answer = prefill.post(GENERATE, json=prefill_body(request_of_two, ec))
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "Bad Request")
    without = prefill_body(request_of_two, {"ec_items": []})
    answer = prefill.post(GENERATE, json=without)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "ec_transfer_params")
    del without["features"]["mm_metadata"]
    for payload in ({}, {"kwargs_data": None}, {"kwargs_data": {"image": [None, None]}}):
        request = {**without, "features": {**without["features"], **payload}}
        answer = prefill.post(GENERATE, json=request)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "features")
        assert encode.post(GENERATE, json=request).status_code == 400


@pytest.mark.timeout(120)
def test_an_encode_worker_that_died_gives_a_clear_conflict(
    prefiller: Server, request_of_two: dict[str, Any], expected: list[int]
) -> None:
    with worker("encode", "--ec-token", "secret") as mortal, client(mortal) as encode:
        ec = encode.post(GENERATE, json=encode_body(request_of_two)).json()["ec_transfer_params"]
        mortal.process.kill()
        mortal.wait()
    for item in ec["ec_items"]:
        # Of a hash that was not fetched before.
        item["sha256"] = hashlib.sha256(b"other").hexdigest()
    with client(prefiller) as prefill:
        answer = prefill.post(GENERATE, json=prefill_body(request_of_two, ec))
        assert answer.status_code == 409, answer.text
        assert "encode the image again" in answer.json()["error"]["message"]
        assert prefill.get("/ping").status_code == 200


@pytest.mark.timeout(120)
def test_who_does_not_know_the_token_gets_nothing(
    encoder: Server, request_of_two: dict[str, Any]
) -> None:
    with client(encoder) as encode:
        ec = encode.post(GENERATE, json=encode_body(request_of_two)).json()["ec_transfer_params"]
        item = ec["ec_items"][0]
        name = {"mm_hash": item["mm_hash"]}
        assert encode.get(transfer.PATH, params=name).status_code == 403
        secret = {transfer.TOKEN_HEADER: "secret"}
        answer = encode.get(transfer.PATH, params=name, headers=secret)
        assert answer.status_code == 200
        assert hashlib.sha256(answer.content).hexdigest() == item["sha256"]
        unknown = encode.get(transfer.PATH, params={"mm_hash": "?"}, headers=secret)
        assert unknown.status_code == 404
        assert encode.get(transfer.PATH, headers=secret).status_code == 400


class Peer:
    """A peer that answers as it is told to, and counts who asks."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self.asked = 0
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.asked += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            self._answer(connection)

    def close(self) -> None:
        self._listener.close()


def sends(data: bytes, length: int | None = None) -> Callable[[socket.socket], None]:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(data) if length is None else length}\r\n\r\n"

    def answer(connection: socket.socket) -> None:
        connection.sendall(head.encode() + data)

    return answer


def stalls(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
    time.sleep(5)


@pytest.fixture(scope="module")
def fetching() -> Iterator[TorchEngine]:
    running = engine(TINY, role="prefill-decode", ec_timeout=0.5)
    yield running
    assert running._thread is not None
    running._thread.close()


@pytest.fixture(scope="module")
def embedding() -> tuple[Embedding, dict[str, Any]]:
    """One of an image of six tokens, and the request that it is of."""
    made = Embedding(torch.randn(6, 64), (torch.randn(6, 64),))
    return made, rendered(TINY, [picture(96, 64)])


def announced(
    embedding: Embedding, request: dict[str, Any], port: int, **changes: Any
) -> tuple[bytes, dict[str, Any]]:
    mm_hash = request["features"]["mm_hashes"]["image"][0]
    kept = store.EmbeddingStore(1 << 20, 60)
    entry = kept.publish(mm_hash, "key", embedding)
    data = bytes(entry.body)
    item = dict(store.describe(entry, "127.0.0.1", port, "image"))
    kept.close()
    return data, {"ec_items": [{**item, "shared_name": None, **changes}]}


def failure(running: TorchEngine, request: dict[str, Any]) -> EngineError | RequestError:
    async def run() -> EngineError | RequestError:
        fetcher = running._media._fetcher  # type: ignore[union-attr]
        assert fetcher is not None
        try:
            await post(running, request)
        except (EngineError, RequestError) as error:
            return error
        finally:
            await fetcher.close()
        pytest.fail("there was an answer")

    found = asyncio.run(run())
    assert running.stats()["requests"] == 0
    return found


@pytest.mark.parametrize(
    ("spoil", "asked"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), 2),
        (lambda data: data[:-4], 2),
        (lambda data: data + b"more", 2),
        (lambda data: b"\xff" * len(data), 2),
    ],
)
def test_a_damaged_body_is_asked_for_once_more_and_then_given_up(
    spoil: Callable[[bytes], bytes],
    asked: int,
    fetching: TorchEngine,
    embedding: tuple[Embedding, dict[str, Any]],
) -> None:
    data, _ = announced(*embedding, port=1)
    peer = Peer(sends(spoil(data)))
    _, ec = announced(*embedding, port=peer.port)
    error = failure(fetching, prefill_body(embedding[1], ec))
    peer.close()
    assert (error.status, peer.asked) == (409, asked)
    assert "encode the image again" in str(error.message)


def test_a_body_of_another_model_is_refused(
    fetching: TorchEngine, embedding: tuple[Embedding, dict[str, Any]]
) -> None:
    request = embedding[1]
    for wrong in (
        Embedding(torch.randn(6, 64)),
        Embedding(torch.randn(6, 32), (torch.randn(6, 32),)),
        Embedding(torch.randn(5, 64), (torch.randn(5, 64),)),
        Embedding(torch.randn(6, 64).half(), (torch.randn(6, 64).half(),)),
    ):
        data, _ = announced(wrong, request, port=1)
        peer = Peer(sends(data))
        _, ec = announced(wrong, request, port=peer.port)
        error = failure(fetching, prefill_body(request, ec))
        peer.close()
        assert error.status == 409


def test_a_slow_peer_is_given_up_in_time(
    fetching: TorchEngine, embedding: tuple[Embedding, dict[str, Any]]
) -> None:
    peer = Peer(stalls)
    _, ec = announced(*embedding, port=peer.port)
    started = time.monotonic()
    error = failure(fetching, prefill_body(embedding[1], ec))
    peer.close()
    assert error.status == 504
    assert time.monotonic() - started < 3


def test_other_hosts_are_not_asked(
    fetching: TorchEngine, embedding: tuple[Embedding, dict[str, Any]]
) -> None:
    for host in ("192.0.2.7", "metadata.internal"):
        _, ec = announced(*embedding, port=80, peer_host=host)
        assert failure(fetching, prefill_body(embedding[1], ec)).status == 403
    for host in ("a/b", "a@b", "", "x" * 300):
        _, ec = announced(*embedding, port=80, peer_host=host)
        assert failure(fetching, prefill_body(embedding[1], ec)).status == 400


def test_shared_names_cannot_leave_their_folder() -> None:
    for name in ("../etc/passwd", "fastrender-ec-/../x", "fastrender-ec-a/..", "/etc/passwd", "x"):
        assert store.open_shared(name, 10) is None


def test_what_is_announced_stays_and_the_rest_makes_room() -> None:
    one = Embedding(torch.randn(8, 16))
    size = store.EmbeddingStore(1 << 20, 60).publish("a", "a", one).size
    kept = store.EmbeddingStore(2 * size, 60)
    kept.publish("a", "a", one)
    kept.publish("b", "b", one)
    with pytest.raises(store.StoreFullError):
        kept.publish("c", "c", one)
    with pytest.raises(store.ConflictError):
        kept.publish("a", "another image", one)
    assert kept.fetch("a") is not None
    kept.publish("c", "c", one)
    assert kept.fetch("a") is None
    assert (len(kept), kept.nbytes) == (2, 2 * size)
    kept.close()
    assert (len(kept), kept.nbytes) == (0, 0)


def test_what_killed_processes_left_is_removed_and_nothing_else() -> None:
    living = store.EmbeddingStore(1 << 20, 60)
    entry = living.publish("a", "a", Embedding(torch.randn(8, 16)))
    assert entry.shared_name is not None
    left = store.SHARED_FOLDER / "fastrender-ec-0123456789abcdef"
    left.mkdir()
    (left / "lock").touch()
    (left / "aa").write_bytes(b"x")
    another = store.EmbeddingStore(1 << 20, 60)
    another.publish("a", "a", Embedding(torch.randn(8, 16)))
    another.close()
    assert not left.exists()
    assert (store.SHARED_FOLDER / entry.shared_name).exists()
    living.close()
    assert not (store.SHARED_FOLDER / entry.shared_name).parent.exists()


def test_announcements_end() -> None:
    one = Embedding(torch.randn(8, 16))
    kept = store.EmbeddingStore(1 << 20, 0.05)
    entry = kept.publish("a", "a", one)
    assert entry.shared_name is not None
    assert (store.SHARED_FOLDER / entry.shared_name).exists()
    time.sleep(0.1)
    assert kept.fetch("a") is None
    assert not (store.SHARED_FOLDER / entry.shared_name).exists()
    kept.close()


def test_an_encode_worker_with_a_full_store_says_when_to_come_back() -> None:
    running = engine(TINY, role="encode", enable_scale_out=True, embedding_cache_gb=1e-6)

    async def run() -> EngineError:
        with pytest.raises(EngineError) as caught:
            await post(running, encode_body(rendered(TINY, [picture(96, 64)])))
        return caught.value

    error = asyncio.run(run())
    assert (error.status, error.headers) == (503, ((b"retry-after", b"1"),))
    assert running._thread is not None
    running._thread.close()


def test_the_same_image_is_published_once() -> None:
    running = engine(TINY, role="encode", enable_scale_out=True)
    request = encode_body(rendered(TINY, [picture(96, 64)]))
    first, second = answers(running, request, request)
    assert first["ec_transfer_params"] == second["ec_transfer_params"]
    media = running.media
    assert media is not None
    assert media.store is not None
    assert len(media.store) == 1
    media.store.close()
    assert running._thread is not None
    running._thread.close()
