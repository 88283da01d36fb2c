"""What keeps tenants apart in the prefix cache of an upstream that several of them share."""

import functools
import hmac
import secrets

MAX_CACHED = 1024


class CacheSalt:
    """A tenant's salt, which only this gateway can make: none of them can choose to land in another one's cache."""

    def __init__(self, secret: bytes | None = None) -> None:
        """``secret`` None draws a fresh one; gateways that should share prefixes are given the same."""
        key = secrets.token_bytes(32) if secret is None else secret

        @functools.lru_cache(MAX_CACHED)
        def of(tenant: str) -> str:
            return hmac.digest(key, tenant.encode("utf-8", "surrogatepass"), "sha256").hex()

        self._of = of

    def of(self, tenant: str) -> str:
        """64 hexadecimal digits."""
        return self._of(tenant)
