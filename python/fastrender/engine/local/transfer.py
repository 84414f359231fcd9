"""Fetching embeddings from encode workers: whom to ask, how long, and what to believe."""

import asyncio
import contextlib
import dataclasses
import hashlib
import ipaddress
import mmap
import socket
from collections.abc import Mapping
from typing import Any

import httpx
import torch

from fastrender.config import RenderConfig
from fastrender.engine.interface import EngineError
from fastrender.engine.local import store
from fastrender.engine.local.params import malformed, refused
from fastrender.engine.local.vision import Embedding
from fastrender.errors import request_error

PATH = "/inference/v1/embeddings"
TOKEN_HEADER = "x-ec-token"
_AT_ONCE = 8
_ATTEMPTS = 2
_MOST_BYTES = 1 << 30
_WHERE = "body.ec_transfer_params"


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where an embedding is to be had, and what it must be."""

    mm_hash: str
    host: str
    port: int
    size: int
    sha256: str
    shared_name: str | None

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return f"{self.mm_hash}:ec:{self.sha256}"


@dataclasses.dataclass(frozen=True, slots=True)
class Expected:
    """What a model takes."""

    dtype: torch.dtype
    hidden_size: int
    layers: int


class _DamagedError(Exception):
    """What came is not what was announced."""


class Fetcher:
    """Fetches embeddings. For one event loop."""

    def __init__(self, config: RenderConfig, expected: Expected) -> None:
        """Ask the peers that `config` allows."""
        self._peers = frozenset(config.ec_peers)
        self._token = config.ec_token
        self._key = config.api_key[0] if config.api_key else None
        self._timeout = config.ec_timeout
        self._expected = expected
        self._own = own_addresses() | ({config.ec_host} if config.ec_host else set())
        self._client: httpx.AsyncClient | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def fetch(self, source: Source, tokens: int) -> Embedding:
        """The embedding of an image of `tokens` tokens; `EngineError` if it is not to be had."""
        local = self._check_peer(source)
        if source.size > _MOST_BYTES:
            raise malformed(_WHERE, f"`size_bytes` may be at most {_MOST_BYTES}")
        if local and source.shared_name is not None:
            body = await asyncio.to_thread(self._open_shared, source)
            if body is not None:
                return self._read(body, source, tokens)
        problem = ""
        for _ in range(_ATTEMPTS):
            try:
                async with self._places, asyncio.timeout(self._timeout):
                    data = await self._download(source)
                return await asyncio.to_thread(self._read, data, source, tokens)
            except TimeoutError:
                peer = f"{source.host}:{source.port}"
                text = f"the encode worker {peer} took longer than {self._timeout:g} seconds"
                raise EngineError(504, text) from None
            except (httpx.HTTPError, _DamagedError) as error:
                problem = str(error) or type(error).__name__
        peer = f"{source.host}:{source.port}"
        raise EngineError(
            409, f"the embedding was not to be had from {peer} ({problem}): encode the image again"
        )

    def _check_peer(self, source: Source) -> bool:
        """Whether the peer is this host; 403 for one that may not be asked."""
        if source.host in self._own:
            return True
        if not {source.host, f"{source.host}:{source.port}"} & self._peers:
            text = f"`{source.host[:100]}` is none of --ec-peers, nor this host"
            raise request_error(text, "PermissionDeniedError", "ec_transfer_params", 403)
        return False

    def _open_shared(self, source: Source) -> mmap.mmap | None:
        assert source.shared_name is not None
        body = store.open_shared(source.shared_name, source.size)
        if body is None or hashlib.sha256(body).hexdigest() != source.sha256:
            return None
        return body

    async def _download(self, source: Source) -> bytes:
        headers = {}
        if self._token is not None:
            headers[TOKEN_HEADER] = self._token
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        host = f"[{source.host}]" if ":" in source.host else source.host
        url = f"http://{host}:{source.port}{PATH}"
        if self._client is None:
            # No redirects, no proxies: where a peer points to was not allowed.
            self._client = httpx.AsyncClient(timeout=self._timeout, trust_env=False)
        body = bytearray()
        parameters = {"mm_hash": source.mm_hash}
        async with self._client.stream("GET", url, params=parameters, headers=headers) as response:
            if response.status_code in (401, 403):
                raise EngineError(502, f"the encode worker {host}:{source.port} refuses this one")
            if response.status_code == 404:
                raise EngineError(409, "the embedding is not kept any more: encode the image again")
            if response.status_code != 200:
                raise _DamagedError(f"it answered {response.status_code}")
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > source.size:
                    raise _DamagedError("it sends more than it announced")
        return bytes(body)

    def _read(self, body: bytes | mmap.mmap, source: Source, tokens: int) -> Embedding:
        if len(body) != source.size:
            raise _DamagedError(f"{len(body)} bytes instead of {source.size}")
        # A map was checked when it was opened.
        if isinstance(body, bytes):
            if hashlib.sha256(body).hexdigest() != source.sha256:
                raise _DamagedError("its hash is another")
            body = bytearray(body)  # type: ignore[assignment]
        try:
            tensors = store.read(body, source.mm_hash)
        except ValueError as error:
            raise _DamagedError(str(error)) from error
        wanted = self._expected
        names = ["embeddings", *(f"deepstack.{i}" for i in range(wanted.layers))]
        if sorted(tensors) != sorted(names):
            raise EngineError(409, "the embedding is of another model: its layers are others")
        shape = [tokens, wanted.hidden_size]
        for tensor in tensors.values():
            if list(tensor.shape) != shape or tensor.dtype != wanted.dtype:
                raise EngineError(
                    409,
                    f"the embedding is {list(tensor.shape)} {tensor.dtype}, and this model takes "
                    f"{shape} {wanted.dtype}",
                )
        return Embedding(tensors["embeddings"], tuple(tensors[name] for name in names[1:]))


def sources(params: Mapping[str, Any]) -> dict[str, Source]:
    """What `ec_transfer_params` say, by hash."""
    items = params.get("ec_items")
    if not isinstance(items, list):
        raise malformed(f"{_WHERE}.ec_items", "`ec_items` must be a list")
    found = {}
    for i, item in enumerate(items):
        where = f"{_WHERE}.ec_items.{i}"
        if not isinstance(item, dict):
            raise malformed(where, "an item must be an object")
        for name in ("mm_hash", "peer_host", "sha256"):
            if not isinstance(item.get(name), str):
                raise malformed(f"{where}.{name}", f"`{name}` must be a string")
        for name, most in (("peer_port", 65_535), ("size_bytes", 2**63)):
            value = item.get(name)
            if type(value) is not int or not 0 < value <= most:
                raise malformed(f"{where}.{name}", f"`{name}` must be a positive integer")
        host = item["peer_host"]
        if not host or len(host) > 255 or any(mark in host for mark in "/?#@[]\\ %"):
            raise malformed(f"{where}.peer_host", "`peer_host` must be a host's name or address")
        shared = item.get("shared_name")
        found[item["mm_hash"]] = Source(
            mm_hash=item["mm_hash"],
            host=host,
            port=item["peer_port"],
            size=item["size_bytes"],
            sha256=item["sha256"],
            shared_name=shared if isinstance(shared, str) else None,
        )
    return found


def missing(mm_hash: str) -> Exception:
    """For an item that `ec_transfer_params` do not name."""
    return refused(
        f"`ec_transfer_params` has no item for the hash `{mm_hash[:80]}`", "ec_transfer_params"
    )


def own_addresses() -> set[str]:
    """Names and addresses that are this host."""
    found = {"localhost", "127.0.0.1", "::1", socket.gethostname(), outward_address()}
    with contextlib.suppress(OSError):
        found |= {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)}
    return found


def outward_address() -> str:
    """The address that other hosts are likely to reach this one by."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: a datagram socket's `connect` only looks for a way.
        probe.connect(("192.0.2.1", 9))
        address = probe.getsockname()[0]
        if not ipaddress.ip_address(address).is_unspecified:
            return str(address)
    return "127.0.0.1"
