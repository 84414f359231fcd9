"""What only a real socket and real processes show."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import httpx
import pytest

from fastrender import cli
from live import Server, client, serving, starting

PACKAGE = pathlib.Path(__file__).parents[2] / "python"
# Beyond what is rendered on the event loop.
PADDING = " " * 40_000


def slow_body(seconds: float) -> str:
    return json.dumps({"pause": seconds}) + PADDING


def post(server: Server, body: str, path: str = "/tokenize") -> httpx.Response:
    headers = {"content-type": "application/json"}
    return httpx.post(server.url + path, content=body, headers=headers, timeout=20)


def connect(server: Server) -> socket.socket:
    url = httpx.URL(server.url)
    return socket.create_connection((url.host, url.port), timeout=10)


def exchange(server: Server, *pieces: bytes) -> bytes:
    """Send raw bytes and read until the other side closes, or falls silent after an answer."""
    received = b""
    with connect(server) as connection, contextlib.suppress(TimeoutError, ConnectionError):
        for piece in pieces:
            connection.sendall(piece)
        while piece := connection.recv(65_536):
            received += piece
            connection.settimeout(0.5)
    return received


def head(path: str, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_sigterm_lets_running_requests_finish_and_refuses_new_ones() -> None:
    with serving() as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(post, server, slow_body(6)) for _ in range(2)]
        until(lambda: b"fastrender_requests_in_flight 3" in metrics(server))
        server.process.send_signal(signal.SIGTERM)
        assert server.logged("shutting down")
        refused = post(server, "{}")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["type"] == "ServiceUnavailableError"
        assert httpx.get(server.url + "/health").status_code == 200
        assert httpx.get(server.url + "/ping").status_code == 503
        assert [future.result().status_code for future in running] == [200, 200]
        assert server.wait() == 0


def metrics(server: Server) -> bytes:
    return httpx.get(server.url + "/metrics").content


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_stops_at_once(number: signal.Signals) -> None:
    with serving() as server, client(server) as connection:
        # A connection that is kept open does not hold the server back.
        assert connection.get("/health").status_code == 200
        server.process.send_signal(number)
        assert server.wait(3) == 0


def test_the_second_sigterm_quits_at_once() -> None:
    with serving() as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, server, slow_body(15))
        until(lambda: b"fastrender_requests_in_flight 2" in metrics(server))
        server.process.send_signal(signal.SIGTERM)
        assert server.logged("shutting down")
        server.process.send_signal(signal.SIGTERM)
        assert server.wait(3) == 128 + signal.SIGTERM
        assert running.result().status_code == 503


def test_requests_that_outlast_the_shutdown_timeout_are_cut_off() -> None:
    with (
        serving("--shutdown-timeout", "0.3") as server,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(post, server, slow_body(15))
        until(lambda: b"fastrender_requests_in_flight 2" in metrics(server))
        server.process.send_signal(signal.SIGTERM)
        assert server.wait(5) == 1
        assert running.result().status_code == 503


def test_sigterm_while_loading_ends_the_process() -> None:
    with starting(STAND_IN_LOAD_SECONDS="20") as server:
        time.sleep(0.5)
        server.process.terminate()
        assert server.wait(5) in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_while_loading_ends_the_command_quietly(
    number: signal.Signals, code: int, workers: int, tmp_path: pathlib.Path
) -> None:
    place = tmp_path / "socket"
    words = f"['serve', '--uds', {str(place)!r}, '--workers', '{workers}']"
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from fastrender import cli\n"
        # A shell's background processes, of which this may be one, ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def load(config): os.write(1, b'loading\\n'); time.sleep(30)\n"
        "cli.load_renderer = load\n"
        f"if __name__ == '__main__': sys.exit(cli.main({words}))\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "loading\n"
        time.sleep(0.3)
        process.send_signal(number)
        # Workers pass on either signal as SIGTERM, and have nothing under way.
        assert process.wait(10) == (code if workers == 1 else 0)
        assert process.stderr.read() == ""
    assert not place.exists()


def test_health_answers_while_threads_render() -> None:
    with serving("--renderer-num-workers", "2") as server, client(server) as probe:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [pool.submit(post, server, slow_body(5)) for _ in range(4)]
            times = []
            while not all(future.done() for future in running):
                started = time.perf_counter()
                assert probe.get("/health").status_code == 200
                times.append(time.perf_counter() - started)
                time.sleep(0.01)
        assert statistics.median(times) < 0.05


def test_a_full_queue_refuses_at_once_and_the_lane_recovers() -> None:
    flags = ("--renderer-num-workers", "1", "--request-queue-limit", "1")
    with serving(*flags) as server, concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(post, server, slow_body(1.0)) for _ in range(2)]
        until(lambda: b"fastrender_queue_length 1" in metrics(server))
        started = time.perf_counter()
        refused = post(server, slow_body(0))
        assert time.perf_counter() - started < 0.5
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert [future.result().status_code for future in running] == [200, 200]
        assert post(server, slow_body(0)).status_code == 200
        assert b'refused_requests_total{reason="queue_full"} 1.0' in metrics(server)


def test_work_for_a_client_that_left_the_queue_is_dropped() -> None:
    with (
        serving("--renderer-num-workers", "1") as server,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(post, server, slow_body(1.0))
        until(lambda: b"fastrender_requests_in_flight 2" in metrics(server))
        with connect(server) as gone:
            body = slow_body(30).encode()
            gone.sendall(head("/tokenize", f"Content-Length: {len(body)}") + body)
            until(lambda: b"fastrender_queue_length 1" in metrics(server))
        until(lambda: b'lost_clients_total{stage="queued"} 1.0' in metrics(server))
        assert b"fastrender_queue_length 0" in metrics(server)
        assert running.result().status_code == 200
        assert post(server, slow_body(0)).status_code == 200


def test_413_comes_before_the_body_does() -> None:
    with serving("--max-request-bytes", "1000") as server:
        answer = exchange(server, head("/tokenize", "Content-Length: 200000000"))
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"type":"RequestTooLargeError"' in answer
        chunks = [b"400\r\n" + b" " * 0x400 + b"\r\n"]
        endless = exchange(server, head("/tokenize", "Transfer-Encoding: chunked"), *chunks)
        assert endless.startswith(b"HTTP/1.1 413 ")


def test_a_large_upload_over_the_limit_still_gets_its_answer() -> None:
    with serving("--max-request-bytes", "1M") as server:
        answer = post(server, " " * 30_000_000)
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == 413
        assert post(server, "{}").status_code == 200


def test_a_length_that_lies_harms_nobody_else() -> None:
    with serving("--request-timeout", "0.5") as server:
        short = exchange(server, head("/tokenize", "Content-Length: 2"), b"{}{}{}")
        assert b"HTTP/1.1 400 " in short
        missing = exchange(server, head("/tokenize", "Content-Length: 100"), b"{}")
        assert missing.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in missing
        for wrong in ("-1", "1e3", "99999999999999999999999", "1, 2"):
            answer = exchange(server, head("/tokenize", f"Content-Length: {wrong}"), b"{}")
            assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")), wrong
        assert post(server, "{}").status_code == 200


def test_no_spelling_of_a_path_opens_a_guarded_route() -> None:
    spellings = [
        *("//v1/models", "/V1/models", "/v1%2fmodels", "/health/../v1/models", "/%2Fv1/models"),
        *("/a//v1/models", "/a/../a/v1/models", "http://x/v1/models", "/./health/", "/a", "/a/"),
        *("/health%00", "/health%3f", "/%2fhealth", "/v1/models?/health", "/v1/models#/health"),
    ]
    with serving("--api-key", "k", "--root-path", "/a") as server:
        for path in spellings:
            raw = exchange(server, head(path, "Connection: close", method="GET"))
            assert raw.startswith(b"HTTP/1.1 401 "), path
        for path in ("/health", "/a/health", "/health?/v1", "/%68ealth"):
            raw = exchange(server, head(path, "Connection: close", method="GET"))
            assert raw.startswith(b"HTTP/1.1 200 "), path


def test_endless_heads_are_cut_off() -> None:
    with serving() as server:
        for piece in (b"y" * 100_000, b"x: y\r\n" * 20_000):
            answer = exchange(server, b"GET /health HTTP/1.1\r\nx: ", *[piece] * 8)
            # The rest of what was sent may reset the connection before the answer is read.
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
        assert httpx.get(server.url + "/health").status_code == 200


def test_what_is_no_http_is_refused_in_the_envelope() -> None:
    with serving() as server:
        for raw in (b"BREW /pot HTTP/1.1\r\n\r\n", b"\0\r\n\r\n", b"GET / HTTP/1.1\r\n: x\r\n\r\n"):
            start, _, body = exchange(server, raw).partition(b"\r\n\r\n")
            assert start.startswith(b"HTTP/1.1 400 ")
            assert b"content-type: application/json" in start
            assert b"connection: close" in start
            error = json.loads(body)["error"]
            assert (error["type"], error["code"]) == ("BadRequestError", 400)
            assert error["message"] == "the request is not valid HTTP/1.1"


def test_keep_alive_and_pipelined_requests_are_answered_in_order() -> None:
    with serving() as server:
        body = b'{"pad": 1}'
        first = head("/tokenize", f"Content-Length: {len(body)}") + body
        second = head("/detokenize", f"Content-Length: {len(body)}", "Connection: close") + body
        answer = exchange(server, first + second)
        assert answer.count(b"HTTP/1.1 200 ") == 2
        assert answer.index(b'"tokenize"') < answer.index(b'"detokenize"')


def test_a_unix_socket_is_served_and_removed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s"
    # A file left over by a server that was killed.
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    with serving("--uds", str(path)) as server:
        assert server.url == f"unix:{path}"
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport) as connection:
            assert connection.get("http://x/health").status_code == 200
        server.process.terminate()
        assert server.wait() == 0
    assert not path.exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
def test_tls_is_served_and_loads_new_files(tmp_path: pathlib.Path) -> None:
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")

    def make(name: str) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        files = ["-keyout", key, "-out", certificate, "-subj", f"/CN={name}"]
        subprocess.run([*command, *files], check=True, capture_output=True, timeout=30)

    make("first")
    flags = ("--ssl-keyfile", key, "--ssl-certfile", certificate, "--enable-ssl-refresh")
    with serving(*flags) as server:
        assert server.url.startswith("https://")
        assert httpx.get(server.url + "/health", verify=False).status_code == 200
        make("second")
        assert server.logged("loaded the new TLS files")
        host, _, port = server.url.removeprefix("https://").partition(":")
        seen = ssl.get_server_certificate((host, int(port)))
        assert seen.strip() == pathlib.Path(certificate).read_text().strip()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
def test_a_tls_file_that_cannot_be_used_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=30)

    for name in ("one", "two"):
        command = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"]
        openssl(*command, "-keyout", f"{name}.key", "-out", f"{name}.pem")
    openssl("rsa", "-in", "one.key", "-aes128", "-passout", "pass:x", "-out", "locked.key")
    (tmp_path / "garbage").write_text("garbage")
    (tmp_path / "empty").write_text("")

    def refusal(key: str, certificate: str, *words: str) -> str:
        flags = ["--ssl-keyfile", key, "--ssl-certfile", certificate, *words]
        assert cli.main(["serve", "--port", "0", "--host", "127.0.0.1", *flags]) == 1
        return capsys.readouterr().err

    for bad in ("garbage", "empty", "one.pem"):
        text = f"ssl-keyfile: `{bad}` holds no private key in PEM form"
        assert refusal(bad, "one.pem") == f"fastrender: {text}\n"
    for bad in ("garbage", "empty", "one.key"):
        text = f"ssl-certfile: `{bad}` holds no certificate in PEM form"
        assert refusal("one.key", bad) == f"fastrender: {text}\n"
    none = "cannot read `none`: no such file or directory\n"
    assert refusal("none", "one.pem") == f"fastrender: ssl-keyfile: {none}"
    assert refusal("one.key", "none") == f"fastrender: ssl-certfile: {none}"
    assert refusal("one.key", "one.pem", "--ssl-ca-certs", "none").endswith(none)
    assert "ssl-keyfile: `two.key` is not the key of `one.pem`" in refusal("two.key", "one.pem")
    assert "ssl-keyfile: `locked.key` has a password" in refusal("locked.key", "one.pem")
    authorities = refusal("one.key", "one.pem", "--ssl-ca-certs", "garbage")
    assert authorities == "fastrender: ssl-ca-certs: `garbage` holds no certificate\n"
    ciphers = refusal("one.key", "one.pem", "--ssl-ciphers", "none")
    assert ciphers == "fastrender: ssl-ciphers: `none` names no known cipher\n"


def test_workers_share_a_socket_and_their_counts() -> None:
    with serving("--workers", "2") as server:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: post(server, "{}"), range(64)))
        assert {answer.status_code for answer in answers} == {200}
        label = 'handler="/tokenize",method="POST",status="2xx"'
        line = f"http_requests_total{{{label}}} 64.0".encode()
        assert all(line in metrics(server) for _ in range(8))
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0


def children(process_id: int) -> list[int]:
    path = pathlib.Path(f"/proc/{process_id}/task/{process_id}/children")
    pids = [int(word) for word in path.read_text().split()]
    # The resource tracker of multiprocessing is a child too.
    return [p for p in pids if b"spawn_main" in pathlib.Path(f"/proc/{p}/cmdline").read_bytes()]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux's /proc")
def test_a_worker_that_dies_is_started_anew() -> None:
    with serving("--workers", "2") as server:
        before = children(server.process.pid)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        assert server.logged("started anew")
        until(lambda: len(children(server.process.pid)) == 2, 20)
        assert post(server, "{}").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux's /proc")
def test_workers_end_with_their_parent_and_leave_no_file(tmp_path: pathlib.Path) -> None:
    with serving("--workers", "2", TMPDIR=str(tmp_path)) as server:
        workers = children(server.process.pid)
        assert post(server, "{}").status_code == 200
        server.process.kill()
        until(lambda: not any(os.path.exists(f"/proc/{worker}") for worker in workers))
    assert list(tmp_path.iterdir()) == []


def test_sigterm_drains_every_worker() -> None:
    with (
        serving("--workers", "2") as server,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        running = [pool.submit(post, server, slow_body(6)) for _ in range(4)]
        time.sleep(0.7)
        server.process.send_signal(signal.SIGTERM)
        assert [future.result().status_code for future in running] == [200] * 4
        assert server.wait() == 0


def test_workers_that_cannot_start_end_the_server_with_the_reason() -> None:
    with starting("--workers", "2", STAND_IN_LOAD_FAILS="1") as server:
        assert server.logged("the folder `x` lacks config.json")
        assert server.wait(30) == 1
    assert "Traceback" not in "".join(server.log)
    with starting("--workers", "2", "--middleware", "no.such") as server:
        assert server.logged("middleware: there is no `no.such`")
        assert server.wait(30) == 1
    assert "Traceback" not in "".join(server.log)


def test_the_access_log_is_off_unless_asked_for() -> None:
    with serving() as server:
        post(server, "{}")
        httpx.get(server.url + "/health")
        time.sleep(0.2)
        assert not any("/tokenize" in line for line in server.log)
    flags = ("--enable-uvicorn-access-log", "--disable-access-log-for-endpoints", "/health,/ping")
    with serving(*flags) as server:
        httpx.get(server.url + "/health?x")
        post(server, "{}")
        assert server.logged('"POST /tokenize HTTP/1.1" 200')
        assert not any("/health" in line for line in server.log)


def test_threads_of_clients_get_their_own_answers() -> None:
    with serving() as server, client(server) as connection:
        errors: list[str] = []

        def ask(number: int) -> None:
            for turn in range(20):
                name = f"{number}-{turn}"
                padding = PADDING if turn % 2 else ""
                answer = connection.post(
                    "/tokenize",
                    content='{"pad": 3}' + padding,
                    headers={"content-type": "application/json", "x-request-id": name},
                )
                if answer.json()["request_id"] != name:
                    errors.append(name)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


def test_requests_that_offer_an_upgrade_are_read_as_if_they_did_not() -> None:
    body = b'{"pad": 3}'
    sized = (f"Content-Length: {len(body)}", body)
    chunked = ("Transfer-Encoding: chunked", b"4\r\n" + body[:4] + b"\r\n6\r\n" + body[4:])
    chunked = (chunked[0], chunked[1] + b"\r\n0\r\n\r\n")
    offers = [
        # What curl --http2 sends.
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
        ("Upgrade: websocket", "Connection: upgrade", "Sec-WebSocket-Key: x"),
        ("upgrade: a", "Upgrade: b", "connection: keep-alive, Upgrade"),
    ]
    with serving() as server:
        for framing, content in (sized, chunked):
            for offer in offers:
                request = head("/tokenize", *offer, framing) + content
                last = head("/detokenize", framing, "Connection: close") + content
                for pieces in (
                    [request, last],
                    [request + last],
                    [request[:60], request[60:] + last],
                    [*(request[i : i + 1] for i in range(len(request))), last],
                ):
                    answer = exchange(server, *pieces)
                    assert answer.count(b"HTTP/1.1 200 ") == 2, (offer, pieces, answer)
                    assert answer.count(b'"pad": "xxx"') == 2
                    assert answer.index(b'"tokenize"') < answer.index(b'"detokenize"')
        for offer in offers:
            closing = head("/health", *offer, "Connection: close", method="GET")
            assert exchange(server, closing).startswith(b"HTTP/1.1 200 ")
            assert exchange(server, head("/health", *offer, method="GET")).startswith(
                b"HTTP/1.1 200 "
            )
            old = head("/health", *offer, method="GET").replace(b"HTTP/1.1", b"HTTP/1.0")
            assert exchange(server, old).startswith(b"HTTP/1.1 200 ")
        many = head("/health", *offers[0], method="GET") * 300
        assert exchange(server, many).count(b"HTTP/1.1 200 ") == 300
        assert exchange(server, head("x:1", method="CONNECT")).startswith(b"HTTP/1.1 400 ")
        waiting = head("/tokenize", *offers[0], sized[0], "Expect: 100-continue")
        assert exchange(server, waiting).startswith(b"HTTP/1.1 100 ")
    assert not [line for line in server.log if "pgrade" in line or "WebSocket" in line]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_may_ask_for_http2() -> None:
    with serving() as server:
        command = ["curl", "-sS", "--http2", "-H", "content-type: application/json"]
        ran = subprocess.run(
            [*command, "-d", '{"pad": 3}', f"{server.url}/tokenize"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert (ran.stderr, json.loads(ran.stdout)["pad"]) == ("", "xxx")
