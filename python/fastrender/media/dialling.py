"""httpcore's network, with the address check in it and a moment by which everything must be done.

httpcore bounds each read and each write; a server that drips bytes never meets such a bound. Here
the end is that of the whole attempt, kept in a context variable since connections outlive requests.
"""

import contextlib
import contextvars
import ssl
import time
from collections.abc import Iterable, Iterator
from typing import Any

import httpcore

from fastrender.media.addresses import Resolver, checked_addresses, system_resolver

_end: contextvars.ContextVar[float] = contextvars.ContextVar("end")


@contextlib.contextmanager
def ending_at(end: float) -> Iterator[None]:
    """What is dialled, sent and read in the block by this thread must be done at `end`.

    `end` is a moment of `time.monotonic`; later, httpcore's timeouts are raised.
    """
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def seconds_left() -> float:
    """Seconds until the end of the attempt; raises `httpcore.ReadTimeout` at it."""
    left = _end.get() - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the time is up")
    return left


class CheckedBackend(httpcore.NetworkBackend):
    """Dials the addresses that were checked, and no others."""

    def __init__(self, *, allow_private: bool, resolve: Resolver = system_resolver) -> None:
        """`allow_private` turns the check off; `resolve` is how names become addresses."""
        self._allow_private = allow_private
        self._resolve = resolve
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to the first address of `host` that answers."""
        try:
            addresses = checked_addresses(
                host,
                port,
                allow_private=self._allow_private,
                timeout=seconds_left(),
                resolve=self._resolve,
            )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError("its name cannot be resolved") from error
        for address in addresses[:-1]:
            # An address that swallows packets must leave time for the next one.
            patience = seconds_left() / 2
            with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return self._dial(address, port, patience, socket_options)
        return self._dial(addresses[-1], port, seconds_left(), socket_options)

    def _dial(
        self, address: str, port: int, timeout: float, options: Iterable[Any] | None
    ) -> httpcore.NetworkStream:
        stream = self._network.connect_tcp(address, port, timeout=timeout, socket_options=options)
        return _EndingStream(stream)


class _EndingStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, seconds_left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, seconds_left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _EndingStream(self._stream.start_tls(ssl_context, server_hostname, seconds_left()))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
