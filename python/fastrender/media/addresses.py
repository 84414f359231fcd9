"""Which addresses may be dialled, so that a client's URL cannot reach inside a network.

A host is resolved once and the addresses that were checked are the ones that are dialled, so that
a name server cannot give another answer in between. How a host is spelled (decimal, octal, a name
of one's own) makes no difference, since only the addresses that it means are looked at.
"""

import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence

from fastrender.media.failures import refused

Resolver = Callable[[str, int], Sequence[str]]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# IANA's registries of special-purpose addresses, without what they call globally reachable.
_NOT_GLOBAL_V4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        # Global by its number, but Azure's machines reach their host's own services there.
        "168.63.129.16/32",
    )
]
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_GLOBAL_V6 = [
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # Teredo, benchmarking, ORCHID.
        "2001:db8::/32",
        "2002::/16",  # 6to4.
        "3fff::/20",
    )
]
# Networks without IPv4 reach all of it through this prefix.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOW_32_BITS = 0xFFFF_FFFF


def is_global(address: str) -> bool:
    """Whether `address` is a unicast address of the public internet.

    IPv4 inside IPv6 (mapped, NAT64) is as good as the IPv4 address; tunnels (6to4, Teredo) are not.
    """
    parsed: _Address = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.scope_id is not None:
            return False
        if parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        elif parsed in _NAT64:
            parsed = ipaddress.IPv4Address(int(parsed) & _LOW_32_BITS)
        else:
            return parsed in _GLOBAL_V6 and not any(parsed in net for net in _NOT_GLOBAL_V6)
    return not any(parsed in network for network in _NOT_GLOBAL_V4)


def system_resolver(host: str, port: int) -> list[str]:
    """The addresses of `host` in the system's order; raises `OSError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError("no name server can be asked for that name") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def checked_addresses(
    host: str,
    port: int,
    *,
    allow_private: bool,
    timeout: float,
    resolve: Resolver = system_resolver,
) -> list[str]:
    """The addresses of `host`, all of which may be dialled.

    Raises a 400 if one of them is not global (unless `allow_private`), `OSError` if there are none
    and `TimeoutError` if the answer takes longer than `timeout`.
    """
    addresses = _resolve(host, port, timeout, resolve)
    if not addresses:
        raise OSError("the name has no address")
    if not allow_private and not all(map(is_global, addresses)):
        raise refused(
            f"the host `{host[:200]}` is not on the public internet; "
            "--allow-private-media lets such hosts be asked"
        )
    return addresses


def _resolve(host: str, port: int, timeout: float, resolve: Resolver) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    answer: list[Sequence[str] | BaseException] = []

    def ask() -> None:
        try:
            answer.append(resolve(host, port))
        except BaseException as error:
            answer.append(error)

    # The system's resolver cannot be told how long to take; a thread can be left behind.
    thread = threading.Thread(target=ask, name="fastrender-resolve", daemon=True)
    thread.start()
    thread.join(timeout)
    if not answer:
        raise TimeoutError("the name server took too long")
    found = answer[0]
    if isinstance(found, BaseException):
        raise found
    return list(found)
