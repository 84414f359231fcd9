"""Plain requests take a short cut; nothing but the time they take may show it."""

import json
import re
import socket
import time

import pytest

from fastrender._native import read_plain_request
from live import Server, client, serving
from test_server_live import connect, exchange, head

BODY = b'{"pad": 3}'


def plain(path: str = "/tokenize", body: bytes = BODY, *headers: str) -> bytes:
    return head(path, *headers, f"Content-Length: {len(body)}") + body


def read_answer(connection: socket.socket) -> bytes:
    """One answer, whole."""
    answer = b""
    while True:
        head, end, body = answer.partition(b"\r\n\r\n")
        if end:
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            if len(body) >= int(length[1]):
                assert len(body) == int(length[1])
                return answer
        piece = connection.recv(65_536)
        assert piece
        answer += piece


def without_date(answer: bytes) -> bytes:
    return re.sub(rb"date: [^\r]+\r\n", b"", answer)


def answered_requests(server: Server) -> float:
    with client(server) as http:
        text = http.get("/metrics").text
    found = re.findall(r'^http_requests_total\{handler="/tokenize".*\} (\S+)$', text, re.MULTILINE)
    return sum(float(value) for value in found)


@pytest.mark.parametrize(
    "body", [BODY, b"{", b'{"fail": true}', b'{"pad": 40000}', b"", b" " * 33_000]
)
@pytest.mark.parametrize("flags", [(), ("--root-path", "/a"), ("--api-key", "k")])
def test_answers_are_those_of_the_usual_way(body: bytes, flags: tuple[str, ...]) -> None:
    paths = ["/tokenize", "/a/tokenize", "/v1/chat/completions/render", "/unknown"]
    keys = [(), ("Authorization: Bearer k",), ("Authorization: Bearer wrong",)]
    with serving(*flags) as server:
        for path in paths:
            for key in keys:
                request = plain(path, body, "X-Request-Id: r1", *key)
                with connect(server) as connection:
                    connection.sendall(request)
                    short = read_answer(connection)
                    # Behind a head that is not over, the same request is uvicorn's.
                    connection.sendall(request[:10])
                    time.sleep(0.02)
                    connection.sendall(request[10:])
                    usual = read_answer(connection)
                assert without_date(short) == without_date(usual)


def test_a_plain_request_is_counted_once() -> None:
    with serving() as server:
        before = answered_requests(server)
        for _ in range(3):
            assert exchange(server, plain()).startswith(b"HTTP/1.1 200 OK\r\n")
        assert answered_requests(server) == before + 3


def test_requests_in_one_piece_are_answered_in_order() -> None:
    pieces = [plain(body=json.dumps({"pad": size}).encode()) for size in (1, 50, 2, 7)]
    with serving() as server:
        answers = exchange(server, b"".join(pieces))
        sizes = [len(pad) for pad in re.findall(rb'"pad": "(x*)"', answers)]
        assert sizes == [1, 50, 2, 7]


def test_a_plain_request_does_not_overtake_a_long_one() -> None:
    slow = json.dumps({"pause": 0.5, "pad": 1}).encode() + b" " * 40_000
    with serving() as server, connect(server) as connection:
        connection.sendall(plain(body=slow))
        time.sleep(0.1)
        connection.sendall(plain(body=b'{"pad": 2}'))
        answers = [read_answer(connection), read_answer(connection)]
        sizes = [len(pad) for answer in answers for pad in re.findall(rb'"pad": "(x*)"', answer)]
        assert sizes == [1, 2]


def test_an_idle_connection_is_closed_some_time_after_its_last_plain_request() -> None:
    with serving("--timeout-keep-alive", "1") as server, connect(server) as connection:
        for _ in range(4):
            connection.sendall(plain())
            assert read_answer(connection).startswith(b"HTTP/1.1 200")
            time.sleep(0.5)
        started = time.monotonic()
        assert connection.recv(65_536) == b""
        assert time.monotonic() - started < 5


def test_what_is_no_plain_request() -> None:
    assert read_plain_request(plain()) == ("/tokenize", None, None, BODY)
    for data in (b"", b"POST /", plain()[:-1], plain() + b"x"):
        assert read_plain_request(data) is None
    assert read_plain_request(plain("/tokenize", BODY, "Expect: 100-continue")) is None
