"""Which prefix cache a request may share: a digest over tenant, adapter and model version."""

import functools
import hashlib
import hmac
import secrets

from tribar.core.requests import ModelCard

MAX_CACHED = 1024
"""Digests kept: a request of a known tenant costs a look-up."""


class Namespaces:
    """Derives cache namespaces under a secret of this server.

    Tenants do not know the secret, so none of them can choose a name that lands in another one's cache.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        """``secret`` None draws a fresh one; front ends that should share prefix caches are given the same."""
        self._secret = secrets.token_bytes(32) if secret is None else secret
        self._cached = functools.lru_cache(MAX_CACHED)(self._digest)

    def digest(self, tenant: str, adapter: str, card: ModelCard) -> bytes:
        """16 bytes, equal exactly for equal tenant, adapter and model version (name and creation time)."""
        return self._cached(tenant, adapter, card.name, card.created_s)

    def _digest(self, tenant: str, adapter: str, name: str, created_s: int) -> bytes:
        salt = hmac.digest(self._secret, tenant.encode("utf-8", "surrogatepass"), "sha256")
        parts = (salt, adapter.encode(), name.encode(), created_s.to_bytes(8, "little", signed=True))
        digest = hashlib.blake2b(digest_size=16, key=self._secret)
        for part in parts:  # lengths keep ("ab", "c") and ("a", "bc") apart
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.digest()
