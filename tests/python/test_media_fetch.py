import dataclasses
import gzip
import pathlib
import shutil
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import media_server
from fastrender.config import RenderConfig
from fastrender.errors import RequestError
from fastrender.media import Fetcher, MediaLimits, RequestBudget, addresses
from fastrender.settings import ConfigError
from media_server import MediaServer

pytestmark = pytest.mark.timeout(60)
MEBIBYTE = 1 << 20


@pytest.fixture
def server() -> Iterator[MediaServer]:
    with media_server.running() as running:
        yield running


def fetcher(**settings: Any) -> Fetcher:
    """A fetcher for loopback servers that does not wait long before it tries again."""
    more = {key: settings.pop(key) for key in ("resolve", "retry_pause") if key in settings}
    config = RenderConfig(**{"allow_private_media": True, **settings})
    return Fetcher(config, **{"retry_pause": 0.01, **more})


def refusal(fetch: Callable[[], bytes], status: int) -> RequestError:
    with pytest.raises(RequestError) as caught:
        fetch()
    error = caught.value
    kinds = {400: ("BadRequestError", None), 422: ("UnprocessableEntityError", "image_url")}
    assert (error.status, (error.type, error.param)) == (status, kinds[status]), error.message
    return error


def test_a_url_gives_its_bytes_and_the_server_sees_who_asks(server: MediaServer) -> None:
    url = server.serve("/a.png?x=%20y", b"content")
    with fetcher() as subject:
        assert subject.fetch(url + "#fragment", "image") == b"content"
    headers = server.headers["/a.png?x=%20y"]
    assert headers["User-Agent"].startswith("fastrender/")
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert "Authorization" not in headers


def test_credentials_in_a_url_are_sent_to_its_host_alone(server: MediaServer) -> None:
    server.serve("/end", b"content")
    server.redirect("/begin", server.url("/end"))
    with fetcher() as subject:
        subject.fetch(f"http://us%20er:pw@127.0.0.1:{server.port}/begin", "image")
    assert server.headers["/begin"]["Authorization"] == "Basic dXMgZXI6cHc="
    assert "Authorization" not in server.headers["/end"]


def test_connections_are_used_again(server: MediaServer) -> None:
    ports = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        ports.append(handler.client_address[1])
        handler.send_response(200)
        handler.send_header("Content-Length", "1")
        handler.end_headers()
        handler.wfile.write(b"x")

    url = server.call("/", answer)
    with fetcher() as subject:
        for _ in range(3):
            subject.fetch(url, "image")
    assert len(set(ports)) == 1


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://127.0.0.1/x.png", "gopher://x", "x.png", "", "//host/x", "javascript:alert(1)"),
        *("http://", "http:///x", "http://[::1", "http://x:99999/", "http://x:y/", "http://\0/"),
        *("http:x", "httpx://x/", "http://" + "a" * 70_000, "http://[::1]]/"),
        *("https://[fe80::1%25]/x", "\x00data:,", " data:image/png;base64,QQ=="),
    ],
)
def test_urls_that_are_malformed_or_of_another_scheme_are_refused(url: str) -> None:
    with fetcher(allow_private_media=False, media_fetch_max_retries=1) as subject:
        error = refusal(lambda: subject.fetch(url, "image"), 400)
    assert len(error.message) < 300


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://0x7f.1:{port}/"),
        *("http://2130706433:{port}/", "http://[::1]:{port}/", "http://[::ffff:10.0.0.1]/"),
        *("http://0177.0.0.1:{port}/", "http://127.1:{port}/", "http://0.0.0.0:{port}/"),
        *("http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/"),
        *("http://\uff11\uff12\uff17.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/"),
        *("http://[::]:{port}/", "http://user@127.0.0.1:{port}/", "http://8.8.8.8@127.0.0.1/"),
    ],
)
def test_by_default_nothing_inside_is_asked(server: MediaServer, url: str) -> None:
    with fetcher(allow_private_media=False) as subject:
        refusal(lambda: subject.fetch(url.format(port=server.port), "image"), 400)
    assert not server.asked


def test_a_name_with_an_address_inside_is_not_asked(server: MediaServer) -> None:
    asked = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["8.8.8.8", "127.0.0.1"]

    with fetcher(allow_private_media=False, resolve=resolve) as subject:
        refusal(lambda: subject.fetch(server.url("/", "x.test"), "image"), 400)
    assert (asked, server.asked) == (["x.test"], {})


@pytest.fixture
def public_server(server: MediaServer, monkeypatch: pytest.MonkeyPatch) -> MediaServer:
    """The server under names that resolve to an address which counts as public: 127.0.0.1."""
    truly = addresses.is_global
    monkeypatch.setattr(
        addresses, "is_global", lambda address: address == "127.0.0.1" or truly(address)
    )
    return server


def resolve_tests(host: str, port: int) -> list[str]:
    if host.removesuffix(".").endswith("public.test"):
        return ["127.0.0.1"]
    if host == "inside.test":
        return ["10.0.0.1"]
    return addresses.system_resolver(host, port)


@pytest.mark.parametrize(
    "target",
    [
        *("http://169.254.169.254/latest/meta-data/", "http://inside.test/", "http://[::1]/"),
        *("http://2852039166/", "file:///etc/passwd", "FILE:///etc/passwd", "ftp://x/", "data:,x"),
        *("//inside.test/x", "gopher://127.0.0.1/", "http://[::ffff:169.254.169.254]/"),
    ],
)
def test_redirects_do_not_lead_inside(public_server: MediaServer, target: str) -> None:
    public_server.redirect("/", target)
    with fetcher(allow_private_media=False, resolve=resolve_tests) as subject:
        refusal(lambda: subject.fetch(public_server.url("/", "public.test"), "image"), 400)


def test_the_address_that_was_checked_is_the_one_that_is_dialled(
    public_server: MediaServer,
) -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    url = public_server.serve("/", b"content").replace("127.0.0.1", "public.test")
    with fetcher(allow_private_media=False, resolve=lambda host, port: next(answers)) as subject:
        assert subject.fetch(url, "image") == b"content"
    assert public_server.headers["/"]["Host"] == f"public.test:{public_server.port}"
    assert next(answers) == ["10.0.0.1"]


def test_the_next_address_is_tried_when_one_does_not_answer(server: MediaServer) -> None:
    url = server.serve("/", b"content").replace("127.0.0.1", "x.test")
    with fetcher(resolve=lambda host, port: ["127.0.0.2", "127.0.0.1"]) as subject:
        assert subject.fetch(url, "image") == b"content"


def test_only_listed_domains_are_asked_on_every_hop(public_server: MediaServer) -> None:
    public_server.serve("/end", b"content")
    port = public_server.port
    public_server.redirect("/near", f"http://CDN.public.test.:{port}/end")
    public_server.redirect("/far", f"http://other.public.test:{port}/end")
    with fetcher(
        allow_private_media=False,
        allowed_media_domains=("public.test", "Cdn.Public.test"),
        resolve=resolve_tests,
    ) as subject:
        assert subject.fetch(public_server.url("/near", "public.test"), "image") == b"content"
        far = public_server.url("/far", "PUBLIC.test")
        assert "other.public.test" in refusal(lambda: subject.fetch(far, "image"), 400).message
        for host in ("sub.public.test", "public.test.evil.test", "evilpublic.test", "127.0.0.1"):
            url = public_server.url("/end", host)
            refusal(lambda url=url: subject.fetch(url, "image"), 400)  # type: ignore[misc]
        url = f"http://public.test:{port}@evil.test/"
        refusal(lambda: subject.fetch(url, "image"), 400)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(server: MediaServer, status: int) -> None:
    server.serve("/a/end", b"content")
    server.redirect("/a/b", "./end", status)
    with fetcher() as subject:
        assert subject.fetch(server.url("/a/b"), "image") == b"content"


@pytest.mark.parametrize(("redirects", "followed"), [(9, True), (10, False), (11, False)])
def test_redirects_come_to_an_end(server: MediaServer, redirects: int, followed: bool) -> None:
    for index in range(redirects):
        server.redirect(f"/{index}", f"/{index + 1}")
    server.serve(f"/{redirects}", b"content")
    with fetcher() as subject:
        if followed:
            assert subject.fetch(server.url("/0"), "image") == b"content"
        else:
            refusal(lambda: subject.fetch(server.url("/0"), "image"), 422)
    assert server.asked.total() <= 10


def test_redirects_can_be_turned_off(server: MediaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RenderConfig.resolve({}, {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"})
    config = dataclasses.replace(config, allow_private_media=True)
    server.redirect("/", "/end")
    with Fetcher(config) as subject:
        refusal(lambda: subject.fetch(server.url("/"), "image"), 422)
    assert server.asked == {"/": 1}


@pytest.mark.parametrize("target", ["http://[::1", "http://x:99999999/", "http://\udcff/"])
def test_a_redirect_to_a_malformed_url_is_the_servers_fault(
    server: MediaServer, target: str
) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        location = target.encode("utf-8", "surrogateescape")
        handler.wfile.write(
            b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
        )

    server.call("/", answer)
    with fetcher(media_fetch_max_retries=1) as subject, pytest.raises(RequestError) as caught:
        subject.fetch(server.url("/"), "image")
    assert caught.value.status in (400, 422)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 410, 429, 304])
def test_answers_of_a_clients_fault_are_not_asked_for_again(
    server: MediaServer, status: int
) -> None:
    url = server.serve("/", b"", status)
    with fetcher() as subject:
        assert str(status) in refusal(lambda: subject.fetch(url, "audio"), 422).message
    assert server.asked["/"] == 1


@pytest.mark.parametrize("status", [500, 502, 503, 599])
def test_failing_servers_are_asked_three_times(server: MediaServer, status: int) -> None:
    url = server.serve("/", b"", status)
    with fetcher() as subject:
        refusal(lambda: subject.fetch(url, "image"), 422)
    assert server.asked["/"] == 3


def test_a_server_that_recovers_is_asked_again(server: MediaServer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if server.asked["/"] < 3:
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
            return
        handler.send_response(200)
        handler.send_header("Content-Length", "4")
        handler.end_headers()
        handler.wfile.write(b"here")

    url = server.call("/", answer)
    with fetcher() as subject:
        assert subject.fetch(url, "image") == b"here"
    with fetcher(media_fetch_max_retries=0) as subject:
        server.asked.clear()
        refusal(lambda: subject.fetch(url, "image"), 422)
    assert server.asked["/"] == 1


def test_a_refused_connection_is_unfetchable_and_soon_given_up() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with fetcher() as subject:
        error = refusal(lambda: subject.fetch(f"http://127.0.0.1:{port}/x.png", "image"), 422)
    assert "refused" in error.message


def test_pauses_grow_and_end_with_the_time_limit(server: MediaServer) -> None:
    url = server.serve("/", b"", 503)
    with fetcher(media_fetch_time_limit=1.0, retry_pause=0.3) as subject:
        begun = time.monotonic()
        refusal(lambda: subject.fetch(url, "image"), 422)
    # The second pause would have been 1.2 s.
    assert server.asked["/"] == 2
    assert 0.25 < time.monotonic() - begun < 1.0


def test_an_unknown_host_is_unfetchable() -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such host")

    with fetcher(resolve=resolve, allow_private_media=False) as subject:
        error = refusal(lambda: subject.fetch("https://x.test/", "image"), 422)
    assert "resolved" in error.message


def test_a_redirect_loop_that_outlasts_the_time_is_unfetchable(server: MediaServer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.15)
        handler.send_response(302)
        handler.send_header("Location", "/")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    url = server.call("/", answer)
    with fetcher(media_fetch_time_limit=0.5) as subject:
        assert "too long" in refusal(lambda: subject.fetch(url, "image"), 422).message


PIECES = [
    *("http:", "https:", "file:", "data:", "//", "/", "[", "]", "::1", "@", ":", "%", "x.test"),
    *("80", "?", "#", "..", "\\", "\0", "\r\n", "é", "\ud800", "base64", ";", ",", " ", "."),
]
URLS = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


@settings(max_examples=500, deadline=None)
@given(url=URLS | st.text() | URLS.map(lambda rest: "http://" + rest))
def test_any_text_for_a_url_is_bytes_or_refused(url: str) -> None:
    try:
        assert isinstance(FUZZED.fetch(url, "image"), bytes)
    except RequestError as error:
        status = error.status
        assert status in (400, 422)


def nowhere(host: str, port: int) -> list[str]:
    raise socket.gaierror(socket.EAI_NONAME, "no such host")


FUZZED = fetcher(allow_private_media=False, media_fetch_max_retries=1, resolve=nowhere)


def drip(byte: bytes, seconds: float, head: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.write(head)
        while True:
            time.sleep(seconds)
            handler.wfile.write(byte)
            handler.wfile.flush()

    return answer


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"],
    ids=["silence", "headers", "body"],
)
def test_a_server_that_drips_bytes_does_not_hold_a_request_up(
    server: MediaServer, head: bytes
) -> None:
    url = server.call("/", drip(b"x", 0.05 if head else 30, head))
    with fetcher(image_fetch_timeout=0.1, media_fetch_time_limit=0.6) as subject:
        begun = time.monotonic()
        error = refusal(lambda: subject.fetch(url, "image"), 422)
    assert 0.4 < time.monotonic() - begun < 3
    assert "too long" in error.message


def test_the_time_limit_of_a_call_holds(server: MediaServer) -> None:
    url = server.call("/", drip(b"x", 0.05, b"HTTP/1.1 200 OK\r\n\r\n"))
    with fetcher() as subject:
        begun = time.monotonic()
        refusal(lambda: subject.fetch(url, "video", time_limit=0.3), 422)
    assert time.monotonic() - begun < 3


def test_one_slow_url_does_not_hold_up_others(server: MediaServer) -> None:
    slow = server.call("/slow", drip(b"x", 0.05, b"HTTP/1.1 200 OK\r\n\r\n"))
    quick = [server.serve(f"/{index}", b"content") for index in range(20)]
    with fetcher() as subject, ThreadPoolExecutor(8) as pool:
        waiting = pool.submit(subject.fetch, slow, "image", time_limit=2.0)
        begun = time.monotonic()
        assert set(pool.map(lambda url: subject.fetch(url, "image"), quick)) == {b"content"}
        assert time.monotonic() - begun < 1.5
        assert not waiting.done()
        assert isinstance(waiting.exception(), RequestError)


@pytest.mark.parametrize("announced", [True, False])
def test_an_endless_body_is_cut_off(server: MediaServer, announced: bool) -> None:
    sent = 0

    def answer(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.close_connection = True
        handler.send_response(200)
        if announced:
            handler.send_header("Content-Length", "9" * 15)
        handler.end_headers()
        for _ in range(1_000):
            handler.wfile.write(bytes(MEBIBYTE))
            sent += MEBIBYTE

    url = server.call("/", answer)
    with fetcher(max_media_download_size_mb=2) as subject:
        refusal(lambda: subject.fetch(url, "image"), 422)
    assert server.asked["/"] == 1
    assert sent < 100 * MEBIBYTE


def test_a_body_as_large_as_allowed_is_taken(server: MediaServer) -> None:
    body = bytes(MEBIBYTE)
    with fetcher(max_media_download_size_mb=1) as subject:
        assert subject.fetch(server.serve("/", body), "image") == body
        url = server.serve("/more", body + b"x")
        refusal(lambda: subject.fetch(url, "image"), 422)
    with fetcher(max_media_download_size_mb=0) as subject:
        assert len(subject.fetch(url, "image")) == MEBIBYTE + 1


def test_a_body_that_ends_early_is_unfetchable(server: MediaServer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    url = server.call("/", answer)
    with fetcher() as subject:
        refusal(lambda: subject.fetch(url, "image"), 422)
    assert server.asked["/"] == 3


@pytest.mark.parametrize(
    "answer",
    [
        *(b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"\0" * 1_000),
        *(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 999 \r\n\r\n"),
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_is_not_http_is_unfetchable(server: MediaServer, answer: bytes) -> None:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.write(answer)

    url = server.call("/", write)
    with fetcher() as subject:
        refusal(lambda: subject.fetch(url, "image"), 422)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
    ],
)
def test_content_that_a_server_compressed_unasked_is_inflated(
    server: MediaServer, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = bytes(range(256)) * 2_000 + bytes(300_000)
    url = server.serve("/", pack(body), Content_Encoding=encoding)
    with fetcher() as subject:
        assert subject.fetch(url, "image") == body
    assert server.headers["/"]["Accept-Encoding"] == "identity"


def test_a_compressed_bomb_does_not_go_off(server: MediaServer) -> None:
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(bytes(MEBIBYTE)) for _ in range(512)) + packer.flush()
    url = server.serve("/", bomb, Content_Encoding="gzip")
    with fetcher(max_media_download_size_mb=1) as subject:
        begun = time.monotonic()
        refusal(lambda: subject.fetch(url, "image"), 422)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"this is not gzip"),
        ("gzip", gzip.compress(b"content" * 100)[:-20]),
        ("deflate", b"\xff\xff\xff"),
        ("gzip", b""),
        ("br", b"x"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x"))),
    ],
)
def test_content_that_cannot_be_inflated_is_unfetchable(
    server: MediaServer, encoding: str, body: bytes
) -> None:
    url = server.serve("/", body, Content_Encoding=encoding)
    with fetcher() as subject:
        refusal(lambda: subject.fetch(url, "image"), 422)


def test_the_downloads_of_a_request_share_a_budget(server: MediaServer) -> None:
    url = server.serve("/", bytes(400))
    budget = RequestBudget(MediaLimits(request_download_bytes=1_000))
    with fetcher() as subject:
        subject.fetch(url, "image", budget=budget)
        subject.fetch(url, "image", budget=budget)
        refusal(lambda: subject.fetch(url, "image", budget=budget), 422)
        assert subject.fetch(url, "image") == bytes(400)


def held(server: MediaServer, body: bytes, status: int = 200) -> tuple[str, threading.Event]:
    """A URL that answers once the event is set."""
    release = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        release.wait(20)
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return server.call("/held", answer), release


def arrived(server: MediaServer, path: str = "/held") -> None:
    while not server.asked[path]:
        time.sleep(0.005)


def test_a_url_that_is_asked_for_at_once_is_fetched_once(server: MediaServer) -> None:
    url, release = held(server, b"content")
    with fetcher() as subject, ThreadPoolExecutor(8) as pool:
        fetches = [pool.submit(subject.fetch, url, "image") for _ in range(8)]
        arrived(server)
        time.sleep(0.1)
        release.set()
        results = [fetch.result() for fetch in fetches]
        assert set(results) == {b"content"}
        assert server.asked["/held"] == 1
        # What has landed is not kept.
        subject.fetch(url, "image")
        assert server.asked["/held"] == 2


def test_an_error_is_shared_too(server: MediaServer) -> None:
    url, release = held(server, b"", 404)
    with fetcher() as subject, ThreadPoolExecutor(4) as pool:
        fetches = [pool.submit(subject.fetch, url, "image") for _ in range(4)]
        arrived(server)
        time.sleep(0.1)
        release.set()
        errors = [fetch.exception() for fetch in fetches]
    assert all(isinstance(error, RequestError) and error.status == 422 for error in errors)
    assert len(set(map(id, errors))) == 4
    assert server.asked["/held"] == 1


def test_who_waits_for_anothers_fetch_has_a_time_limit_of_its_own(server: MediaServer) -> None:
    url, release = held(server, b"content")
    with fetcher() as subject, ThreadPoolExecutor(1) as pool:
        first = pool.submit(subject.fetch, url, "image")
        arrived(server)
        begun = time.monotonic()
        refusal(lambda: subject.fetch(url, "image", time_limit=0.2), 422)
        assert time.monotonic() - begun < 2
        release.set()
        assert first.result() == b"content"


def test_a_spent_budget_is_not_shared(server: MediaServer) -> None:
    url, release = held(server, bytes(500))
    small = RequestBudget(MediaLimits(request_download_bytes=100))
    with fetcher() as subject, ThreadPoolExecutor(2) as pool:
        first = pool.submit(subject.fetch, url, "image", budget=small)
        arrived(server)
        second = pool.submit(subject.fetch, url, "image")
        time.sleep(0.1)
        release.set()
        assert second.result() == bytes(500)
        error = first.exception()
    assert isinstance(error, RequestError)
    assert error.status == 422


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    inside = tmp_path / "inside"
    (inside / "below").mkdir(parents=True)
    (inside / "a b%.png").write_bytes(b"content")
    (inside / "below" / "c.png").write_bytes(b"deep")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "inside-too").mkdir()
    (tmp_path / "inside-too" / "d").write_bytes(b"secret")
    (inside / "out").symlink_to(tmp_path / "secret")
    (inside / "in").symlink_to(inside / "below" / "c.png")
    (inside / "loop").symlink_to(inside / "loop")
    return inside


def test_files_of_the_allowed_folder_are_read(folder: pathlib.Path) -> None:
    with fetcher(allowed_local_media_path=str(folder)) as subject:
        assert subject.fetch(f"file://{folder}/a%20b%25.png", "image") == b"content"
        assert subject.fetch(f"FILE://localhost{folder}/a b%25.png", "image") == b"content"
        assert subject.fetch(f"file:{folder}/below/../below/c.png", "image") == b"deep"
        assert subject.fetch(f"file://{folder}/in", "image") == b"deep"


def test_other_files_are_refused(folder: pathlib.Path) -> None:
    outside = ["/etc/hostname", "/secret", f"{folder}/out", f"{folder}/../secret", f"{folder}"]
    outside += [f"{folder}/%2e%2e/secret", f"{folder}-too/d", "", "/", f"{folder}/a\0b"]
    with fetcher(allowed_local_media_path=str(folder)) as subject:
        for path in outside:
            url = f"file://{path}"
            refusal(lambda url=url: subject.fetch(url, "image"), 400)  # type: ignore[misc]
    with fetcher() as subject:
        refusal(lambda: subject.fetch(f"file://{folder}/in", "image"), 400)


def test_files_that_cannot_be_read_are_unfetchable(folder: pathlib.Path) -> None:
    import os

    os.mkfifo(folder / "pipe")
    (folder / "large").write_bytes(bytes(MEBIBYTE + 1))
    with fetcher(allowed_local_media_path=str(folder), max_media_download_size_mb=1) as subject:
        for name in ("missing", "pipe", "below", "large", "a b%.png/x"):
            url = f"file://{folder}/{name.replace('%', '%25')}"
            refusal(lambda url=url: subject.fetch(url, "image"), 422)  # type: ignore[misc]


def test_a_folder_of_media_must_be_there(folder: pathlib.Path) -> None:
    for path in (folder / "nowhere", folder / "a b%.png"):
        with pytest.raises(ConfigError, match="allowed-local-media-path"):
            fetcher(allowed_local_media_path=str(path))


def test_data_urls_need_no_network() -> None:
    with fetcher(allow_private_media=False) as subject:
        assert subject.fetch("DATA:image/png;base64,aGVs\nbG8=", "image") == b"hello"
        for url in ("data:image/png;BASE64,aGVsbG8=", "data:image/png;base64", "data:x,aGVsbG8="):
            refusal(lambda url=url: subject.fetch(url, "image"), 400)  # type: ignore[misc]


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_proxies")
def test_proxies_of_the_environment_are_not_used(
    server: MediaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    with fetcher(media_fetch_max_retries=1) as subject:
        assert subject.fetch(server.serve("/", b"content"), "image") == b"content"


@pytest.mark.usefixtures("no_proxies")
def test_trusted_proxies_are_used_and_resolve_names_themselves(
    server: MediaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"us%20er:pw@127.0.0.1:{server.port}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server.serve("http://far.test/x?y", b"by proxy")
    server.serve("/", b"straight")
    with fetcher(media_use_proxies=True) as subject:
        assert subject.fetch("http://far.test/x?y", "image") == b"by proxy"
        assert subject.fetch(server.url("/"), "image") == b"straight"
    headers = server.headers["http://far.test/x?y"]
    assert (headers["Host"], headers["Proxy-Authorization"]) == (
        "far.test",
        "Basic dXMgZXI6cHc=",
    )


@pytest.mark.usefixtures("no_proxies")
def test_proxies_that_are_not_http_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="socks5"):
        fetcher(media_use_proxies=True)


def test_domains_are_compared_however_they_are_spelled(server: MediaServer) -> None:
    server.serve("/", b"content")
    with fetcher(
        allowed_media_domains=("BÜCHER.test.", "[::1]"),
        resolve=lambda host, port: ["127.0.0.1"],
    ) as subject:
        for host in ("bücher.test", "xn--bcher-kva.test", "XN--BCHER-KVA.TEST."):
            assert subject.fetch(server.url("/", host), "image") == b"content"
        url = server.url("/", "bucher.test")
        refusal(lambda: subject.fetch(url, "image"), 400)
        # Allowed, but nobody listens there.
        url = server.url("/", "[::1]")
        refusal(lambda: subject.fetch(url, "image"), 422)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_certificates_are_those_of_the_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    command += f" -keyout {key} -out {certificate} -subj /CN=x.test"
    command += " -addext subjectAltName=DNS:x.test"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    names: list[str | None] = []
    context.sni_callback = lambda connection, name, _: names.append(name)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with media_server.running(context) as server:
        server.serve("/", b"content")
        with fetcher(retry_pause=20, resolve=lambda host, port: ["127.0.0.1"]) as subject:
            url = f"https://x.test:{server.port}/"
            assert subject.fetch(url, "image") == b"content"
            error = refusal(lambda: subject.fetch(url.replace("x.t", "y.t"), "image"), 422)
    assert "certificate" in error.message
    assert names[:2] == ["x.test", "y.test"]
