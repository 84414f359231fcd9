"""TLS files: loading them, and saying which of them is wrong."""

import ssl

from fastrender.config import RenderConfig
from fastrender.settings import ConfigError


def check(config: RenderConfig) -> None:
    """Refuse TLS settings that no server could start with, by name."""
    if config.ssl_certfile is None or config.ssl_keyfile is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, path in (
        ("ssl-certfile", config.ssl_certfile),
        ("ssl-keyfile", config.ssl_keyfile),
        ("ssl-ca-certs", config.ssl_ca_certs),
    ):
        try:
            if path is not None:
                open(path, "rb").close()
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ConfigError(f"{name}: cannot read `{path}`: {why}") from error
    try:
        load_pair(context, config.ssl_certfile, config.ssl_keyfile)
    except ssl.SSLError as error:
        raise ConfigError(_what_is_wrong(config, error)) from error
    try:
        if config.ssl_ca_certs is not None:
            context.load_verify_locations(config.ssl_ca_certs)
    except ssl.SSLError as error:
        raise ConfigError(f"ssl-ca-certs: `{config.ssl_ca_certs}` holds no certificate") from error
    try:
        if config.ssl_ciphers is not None:
            context.set_ciphers(config.ssl_ciphers)
    except ssl.SSLError as error:
        raise ConfigError(f"ssl-ciphers: `{config.ssl_ciphers}` names no known cipher") from error


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate and its key; `ConfigError` for a key with a password."""

    def refuse() -> str:
        # Or OpenSSL would ask at the terminal, and wait.
        raise ConfigError(
            f"ssl-keyfile: `{key}` has a password; give a key without one "
            "(`openssl pkey -in FILE` writes it)"
        )

    context.load_cert_chain(certificate, key, password=refuse)


def _what_is_wrong(config: RenderConfig, error: ssl.SSLError) -> str:
    """Which of the two files it is: OpenSSL says of both the same."""
    if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
        return f"ssl-keyfile: `{config.ssl_keyfile}` is not the key of `{config.ssl_certfile}`"
    try:
        # A file of certificates alone loads as such, whatever the key is.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(config.ssl_certfile)
    except ssl.SSLError:
        return f"ssl-certfile: `{config.ssl_certfile}` holds no certificate in PEM form"
    return f"ssl-keyfile: `{config.ssl_keyfile}` holds no private key in PEM form"
