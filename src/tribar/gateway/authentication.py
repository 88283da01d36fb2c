"""Who is asking: API keys as bearer tokens (RFC 6750), as pure ASGI."""

from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from tribar.core.errors import Unauthenticated
from tribar.gateway.key_id import key_id

TenantOf = Callable[[bytes], str | None]
"""The tenant that a key belongs to; None for a key that is not valid. The key is as sent: any bytes, any length."""

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready"})
"""Asked by orchestrators, which have no keys; they tell nothing else."""


class Authentication:
    """Lets requests with a valid key pass; refuses the others before their body.

    What is known of the asker is left in ``scope["state"]``: ``tenant``, and ``key_id``.

    A preflight never gets here: the CORS layer outside answers it. Keys reach no log, no metric and no message.
    """

    def __init__(self, app: ASGIApp, tenant_of: TenantOf) -> None:
        self._app = app
        self._tenant_of = tenant_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its tenant. Raises ``Unauthenticated``."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            values = [value for name, value in scope["headers"] if name == b"authorization"]
            scope["state"]["tenant"] = tenant_of(values, self._tenant_of)
            scope["state"]["key_id"] = key_id(_bearer_token(values))
        await self._app(scope, receive, send)


def tenant_of(authorization: Sequence[bytes], tenant_of_key: TenantOf) -> str:
    """The tenant whose key came in the values of the Authorization header. Raises ``Unauthenticated``."""
    tenant = tenant_of_key(_bearer_token(authorization))
    if tenant is None:
        raise Unauthenticated("the API key is not valid", code="invalid_api_key")
    return tenant


def _bearer_token(values: Sequence[bytes]) -> bytes:
    """What follows ``Bearer``. With two of the header nobody can tell which one a proxy in front has checked."""
    if len(values) > 1:
        raise Unauthenticated("the Authorization header came more than once", code="invalid_api_key")
    scheme, _, token = (values[0] if values else b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip(b" "):
        raise Unauthenticated("an API key is needed: send Authorization: Bearer KEY", code="invalid_api_key")
    return token.strip(b" ")
