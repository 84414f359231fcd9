"""API keys."""

import hashlib
import hmac
from collections.abc import Iterable


class ApiKeys:
    """The keys that open a server, kept as digests; none of them means open."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Take keys as the command line gives them."""
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)

    def __bool__(self) -> bool:
        """Whether a key is needed at all."""
        return bool(self._digests)

    def admit(self, authorization: bytes) -> bool:
        """Whether an Authorization header holds one of the keys, in time that tells nothing."""
        scheme, _, token = authorization.partition(b" ")
        digest = hashlib.sha256(token).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches) and scheme.lower() == b"bearer"
