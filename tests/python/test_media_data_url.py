import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrender.errors import RequestError
from fastrender.media.data_url import decode, is_data_url, split

pytestmark = pytest.mark.timeout(30)
CONTENT = b"\x89PNG\r\n\x1a\n\xff\xfe\xfb"
PAYLOAD = base64.b64encode(CONTENT).decode()


@pytest.mark.parametrize(
    ("url", "media_type"),
    [
        (f"data:image/png;base64,{PAYLOAD}", "image/png"),
        (f"DATA:image/png;base64,{PAYLOAD}", "image/png"),
        (f"Data:IMAGE/PNG;base64,{PAYLOAD}", "IMAGE/PNG"),
        (f"data:;base64,{PAYLOAD}", ""),
        (f"data:image/png;charset=utf-8;base64,{PAYLOAD}", "image/png"),
        (f"data:text/html;base64,{PAYLOAD}", "text/html"),
        (f"data:image/png;base64,{PAYLOAD[:4]}\r\n{PAYLOAD[4:]}\n", "image/png"),
        (f"data:image/png;base64, {PAYLOAD}", "image/png"),
        (f"data:image/png;base64,\t{PAYLOAD[:5]} \v\f{PAYLOAD[5:]}", "image/png"),
    ],
)
def test_these_data_urls_are_understood(url: str, media_type: str) -> None:
    assert is_data_url(url)
    found, payload = split(url)
    assert (found, decode(payload)) == (media_type, CONTENT)


@pytest.mark.parametrize(
    "url",
    [
        *(f"data:image/png;BASE64,{PAYLOAD}", f"data:image/png,{PAYLOAD}", "data:image/png;base64"),
        *(
            f"data:base64,{PAYLOAD}",
            f"data:image/png;base64;x=1,{PAYLOAD}",
            "data:",
            "data:,",
            "data:\ud800",
        ),
        f"data:image/png;base64 ,{PAYLOAD}",
    ],
)
def test_these_data_urls_are_refused(url: str) -> None:
    with pytest.raises(RequestError) as caught:
        split(url)
    error = caught.value
    assert (error.status, error.type, error.param) == (400, "BadRequestError", None)
    assert len(error.message) < 120


@pytest.mark.parametrize(
    "payload",
    [
        *(
            "QUJD=",
            "QUJD====",
            "====",
            "QQ==A",
            "QQ",
            "QQ=",
            "Q",
            "@@@@",
            "QQ==QQ==",
            "=QQ=",
            "QUI==",
        ),
        *("__77776-", quote("+/+/"), "é===", "QUJD\0"),
    ],
)
def test_payloads_are_decoded_strictly(payload: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(payload)
    assert caught.value.status == 400


def test_an_empty_payload_is_no_bytes() -> None:
    assert decode("") == b""


@given(data=st.binary(), width=st.integers(1, 80))
def test_wrapped_lines_decode_to_the_same(data: bytes, width: int) -> None:
    payload = base64.b64encode(data).decode()
    wrapped = "\r\n".join(payload[at : at + width] for at in range(0, len(payload), width))
    assert decode(payload) == decode(wrapped) == decode(wrapped.encode()) == data


@given(st.text() | st.binary())
def test_any_payload_is_bytes_or_refused(payload: str | bytes) -> None:
    try:
        assert isinstance(decode(payload), bytes)
    except RequestError as error:
        status = error.status
        assert status == 400
