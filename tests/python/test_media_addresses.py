import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrender.errors import RequestError
from fastrender.media.addresses import checked_addresses, is_global, system_resolver

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.63.255.255"),
        *("100.128.0.1", "169.253.0.1", "192.0.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.254"),
        *("2606:4700:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888", "3ffe::1"),
        # IPv4 that IPv6-only networks reach through a translator, and mapped.
        *("64:ff9b::8.8.8.8", "::ffff:8.8.8.8"),
    ],
)
def test_public_addresses_may_be_dialled(address: str) -> None:
    assert is_global(address)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1"),
        *("127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192"),
        *("192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255"),
        *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1"),
        *("255.255.255.255", "168.63.129.16"),
        *("::", "::1", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1"),
        *("fd00:ec2::254", "ff02::1", "100::1", "2001:db8::1", "3fff::1", "5f00::1", "4000::1"),
        # IPv4 within.
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
        *("64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8"),
        *("2002:0a00:0001::1", "2002:0808:0808::1", "2001:0:808:808::1"),
        *("2001:2::1", "2001:10::1", "2001:20::1", "2606:4700:4700::1111%1"),
    ],
)
def test_addresses_that_lead_inside_may_not(address: str) -> None:
    assert not is_global(address)


@given(st.ip_addresses())
def test_every_address_has_an_answer_no_laxer_than_pythons(address: object) -> None:
    text = str(address)
    # Python calls 64:ff9b::/96 global whatever stands in it, and some parts of 192.0.0.0/24.
    if is_global(text) and not text.startswith(("64:ff9b::", "::ffff:")):
        assert address.is_global  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "localhost"),
        *("0", "::1", "::ffff:10.0.0.1", "::ffff:7f00:1", "169.254.169.254", "0xa9fea9fe"),
    ],
)
def test_no_spelling_of_a_host_leads_inside(host: str) -> None:
    with pytest.raises(RequestError) as caught:
        checked_addresses(host, 80, allow_private=False, timeout=10)
    assert (caught.value.status, caught.value.param) == (400, None)
    assert checked_addresses(host, 80, allow_private=True, timeout=10)


def test_one_address_inside_refuses_the_whole_name() -> None:
    for addresses in (["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"], ["8.8.8.8", "::1"]):
        with pytest.raises(RequestError):
            checked_addresses(
                "x.test",
                80,
                allow_private=False,
                timeout=5,
                resolve=lambda host, port, found=addresses: found,  # type: ignore[misc]
            )


def test_a_name_is_resolved_once() -> None:
    asked = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["8.8.8.8", "8.8.4.4"]

    found = checked_addresses("x.test", 81, allow_private=False, timeout=5, resolve=resolve)
    assert (found, asked) == (["8.8.8.8", "8.8.4.4"], [("x.test", 81)])


def test_a_name_without_addresses_is_an_error_of_the_network() -> None:
    with pytest.raises(OSError, match="no address"):
        checked_addresses("x", 80, allow_private=True, timeout=5, resolve=lambda host, port: [])
    for name in ("a" * 64 + ".test", "a..b", "x.invalid"):
        with pytest.raises(OSError):  # noqa: PT011
            checked_addresses(name, 80, allow_private=True, timeout=20, resolve=system_resolver)


def test_a_slow_name_server_is_not_waited_for() -> None:
    def resolve(host: str, port: int) -> list[str]:
        time.sleep(3)
        return ["8.8.8.8"]

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        checked_addresses("x.test", 80, allow_private=False, timeout=0.1, resolve=resolve)
    assert time.monotonic() - begun < 2
