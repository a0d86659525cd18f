"""Who asks: an API key names a tenant."""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Protocol


class Keys(Protocol):
    """Something that knows keys."""

    def verify(self, presented: str) -> str | None:
        """The tenant whose key this is; None when nobody's."""
        ...


def key_digest(key: str) -> bytes:
    """SHA-256 of a key: what is kept and compared instead of the key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class PlainKeys:
    """Keys given in the clear (``MASHBOX_API_KEY``); each is a tenant of its own."""

    def __init__(self, keys: Iterable[str]) -> None:
        digests = [key_digest(key) for key in keys]
        self._tenants = [(digest, f"key-{digest.hex()[:12]}") for digest in digests]

    def verify(self, presented: str) -> str | None:
        # Every stored key is compared, in constant time, so that the time tells nothing of a match.
        digest = key_digest(presented)
        found = None
        for stored, tenant in self._tenants:
            if hmac.compare_digest(stored, digest):
                found = tenant
        return found
