"""GET over HTTP for URLs that clients choose: bounded in bytes, time, redirects and addresses."""

import base64
import dataclasses
import time
import urllib.parse
from collections.abc import Iterable

import httpcore
import httpx

from fastrender.errors import RequestError
from fastrender.media.addresses import Resolver, system_resolver
from fastrender.media.connections import Connections
from fastrender.media.content_encoding import inflated
from fastrender.media.dialling import ending_at, seconds_left
from fastrender.media.failures import refused, unfetchable
from fastrender.media.limits import RequestBudget
from fastrender.version import own_version

# Timeouts and pauses grow by this factor from one attempt to the next (vLLM's `connections.py`).
BACKOFF = 4.0
# aiohttp, vLLM's client, gives up at the tenth redirect.
REDIRECTS = 9
_REDIRECTING = frozenset([301, 302, 303, 307, 308])
_SCHEMES = ("http", "https")
_LARGEST_PORT = 65_535


class BudgetSpent(Exception):
    """The request whose budget a download charges has none left."""


class _TryAgain(Exception):
    """An attempt failed in a way that may pass."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DownloadRules:
    """What may be fetched, and how patiently."""

    allow_private: bool = False
    use_proxies: bool = False
    domains: frozenset[str] = frozenset()
    follow_redirects: bool = True
    attempts: int = 3
    pause: float = 1.0
    largest: int = 0


class Downloader:
    """Fetches URLs; any number of threads may use one, and share its connections."""

    def __init__(self, rules: DownloadRules, resolve: Resolver = system_resolver) -> None:
        """Raises `ConfigError` for proxies that cannot be used."""
        self._rules = rules
        self._domains = frozenset(map(_normalized, rules.domains))
        self._connections = Connections(
            allow_private=rules.allow_private, use_proxies=rules.use_proxies, resolve=resolve
        )

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def get(self, url: str, *, timeout: float, time_limit: float, budget: RequestBudget) -> bytes:
        """The content of `url`.

        `timeout` bounds the first attempt (0: not at all), `time_limit` all of them. Raises
        `RequestError`: 400 for a URL that is malformed or may not be asked, 422 for what came of
        it. Raises `BudgetSpent` where `budget` has too little left.
        """
        target = self._target(url)
        end = time.monotonic() + time_limit
        for attempt in range(max(self._rules.attempts, 1)):
            if attempt:
                pause = self._rules.pause * BACKOFF ** (attempt - 1)
                if time.monotonic() + pause >= end:
                    break
                time.sleep(pause)
            patience = timeout * BACKOFF**attempt if timeout > 0 else time_limit
            try:
                with ending_at(min(end, time.monotonic() + patience)):
                    return self._follow(target, budget)
            except _TryAgain as error:
                failure = str(error)
        raise unfetchable(f"cannot fetch media from `{_host(target)[:200]}`: {failure}")

    def _follow(self, target: httpx.URL, budget: RequestBudget) -> bytes:
        for _ in range(REDIRECTS + 1):
            answer = self._ask(target, budget)
            if isinstance(answer, bytes):
                return answer
            if not self._rules.follow_redirects:
                raise unfetchable("the URL leads to another one, and redirects are turned off")
            target = self._target(answer, base=target)
        raise unfetchable("the URL leads to another one too many times")

    def _target(self, text: str, base: httpx.URL | None = None) -> httpx.URL:
        try:
            target = httpx.URL(text) if base is None else base.join(text)
        except (httpx.InvalidURL, ValueError, TypeError):
            if base is None:
                raise refused("the URL is malformed") from None
            raise unfetchable("the URL leads to a malformed one") from None
        if target.scheme not in _SCHEMES:
            raise refused("the URL leads to one that is not HTTP")
        if not target.raw_host:
            raise refused("the URL names no host")
        if (target.port or 0) > _LARGEST_PORT:
            raise refused("the URL's port is no port")
        if self._domains and _host(target) not in self._domains:
            known = ", ".join(sorted(self._rules.domains))
            raise refused(
                f"the domain `{_host(target)[:200]}` is not one of --allowed-media-domains: {known}"
            )
        return target

    def _ask(self, target: httpx.URL, budget: RequestBudget) -> bytes | str:
        try:
            request = httpcore.Request(
                "GET",
                httpcore.URL(
                    scheme=target.raw_scheme,
                    host=target.raw_host,
                    port=target.port,
                    target=target.raw_path,
                ),
                headers=_headers(target),
                extensions={"timeout": {"pool": seconds_left()}},
            )
            response = self._connections.to(target).handle_request(request)
            try:
                return self._read(response, budget)
            finally:
                response.close()
        except httpcore.LocalProtocolError:
            raise refused("the URL is malformed") from None
        except httpcore.TimeoutException:
            raise _TryAgain("it took too long") from None
        except httpcore.ConnectError as error:
            if "certificate" in str(error).lower():
                raise unfetchable(f"`{_host(target)[:200]}` has no valid certificate") from None
            raise _TryAgain(f"no connection ({_reason(error)})") from None
        except httpcore.ProxyError:
            raise _TryAgain("the proxy did not connect") from None
        except (httpcore.NetworkError, httpcore.ProtocolError):
            raise _TryAgain("the connection broke") from None

    def _read(self, response: httpcore.Response, budget: RequestBudget) -> bytes | str:
        headers = {
            name.decode("latin-1").lower(): value.decode("utf-8", "replace")
            for name, value in response.headers
        }
        status = response.status
        if status in _REDIRECTING and "location" in headers:
            return headers["location"]
        if status >= 500:
            raise _TryAgain(f"it answered with HTTP {status}")
        if not 200 <= status < 300:
            raise unfetchable(f"cannot fetch media from the URL: it answered with HTTP {status}")
        largest = self._rules.largest
        if 0 < largest < int(headers.get("content-length", 0)):
            raise _too_large(largest)
        assert isinstance(response.stream, Iterable)
        return self._gather(inflated(response.stream, headers.get("content-encoding", "")), budget)

    def _gather(self, pieces: Iterable[bytes], budget: RequestBudget) -> bytes:
        gathered: list[bytes] = []
        size = 0
        for piece in pieces:
            seconds_left()
            size += len(piece)
            if 0 < self._rules.largest < size:
                raise _too_large(self._rules.largest)
            if not budget.download(len(piece)):
                raise BudgetSpent
            gathered.append(piece)
        return b"".join(gathered)


def _headers(target: httpx.URL) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"Host", target.netloc),
        (b"User-Agent", f"fastrender/{own_version()}".encode("ascii", "replace")),
        (b"Accept", b"*/*"),
        (b"Accept-Encoding", b"identity"),
    ]
    if target.userinfo:
        secret = urllib.parse.unquote_to_bytes(target.userinfo)
        headers.append((b"Authorization", b"Basic " + base64.b64encode(secret)))
    return headers


def _host(target: httpx.URL) -> str:
    return _normalized(target.raw_host.decode("ascii", "replace"))


def _normalized(domain: str) -> str:
    """A host's name as it can be compared: small letters, as the wire has them, no last dot."""
    domain = domain.strip().lower().removesuffix(".").strip("[]")
    try:
        return httpx.URL(scheme="http", host=domain).raw_host.decode("ascii")
    except (httpx.InvalidURL, ValueError):
        return domain


def _too_large(largest: int) -> RequestError:
    return unfetchable(f"the URL's content is larger than {largest} bytes")


def _reason(error: Exception) -> str:
    text = str(error).lower()
    known = ("refused", "unreachable", "its name cannot be resolved")
    return next((reason for reason in known if reason in text), "it failed")
