"""Connections to what may be asked: straight to checked addresses, or through trusted proxies."""

import ssl
import urllib.parse
import urllib.request

import httpcore
import httpx

from fastrender.media.addresses import Resolver
from fastrender.media.dialling import CheckedBackend
from fastrender.settings import ConfigError

_CONNECTIONS = 256
_IDLE_CONNECTIONS = 32
_IDLE_SECONDS = 10.0


class Connections:
    """Pools of connections, shared by threads.

    A proxy resolves names itself, where no check of ours sees what is dialled. So those of the
    environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) are used only where asked for.
    """

    def __init__(self, *, allow_private: bool, use_proxies: bool, resolve: Resolver) -> None:
        """Connections are opened at need. Raises `ConfigError` for proxies that are not HTTP."""
        certificates = httpx.create_ssl_context()
        self._direct = httpcore.ConnectionPool(
            ssl_context=certificates,
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_IDLE_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=CheckedBackend(allow_private=allow_private, resolve=resolve),
        )
        proxies = urllib.request.getproxies() if use_proxies else {}
        self._proxied = {
            scheme: _through(proxy, certificates, resolve)
            for scheme in ("http", "https")
            if (proxy := proxies.get(scheme) or proxies.get("all"))
        }

    def to(self, target: httpx.URL) -> httpcore.ConnectionPool:
        """The pool that reaches `target`."""
        proxied = self._proxied.get(target.scheme)
        if proxied is None or urllib.request.proxy_bypass(target.host):
            return self._direct
        return proxied

    def close(self) -> None:
        """Close all connections."""
        for pool in (self._direct, *self._proxied.values()):
            pool.close()


def _through(proxy: str, certificates: ssl.SSLContext, resolve: Resolver) -> httpcore.HTTPProxy:
    parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"media-use-proxies: `{parts.scheme}` proxies are not supported, HTTP is")
    secret = (
        urllib.parse.unquote(parts.username or ""),
        urllib.parse.unquote(parts.password or ""),
    )
    return httpcore.HTTPProxy(
        f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
        proxy_auth=secret if parts.username else None,
        ssl_context=certificates,
        max_connections=_CONNECTIONS,
        max_keepalive_connections=_IDLE_CONNECTIONS,
        keepalive_expiry=_IDLE_SECONDS,
        network_backend=CheckedBackend(allow_private=True, resolve=resolve),
    )
