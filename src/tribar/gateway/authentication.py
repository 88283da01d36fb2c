"""Who is asking: API keys as bearer tokens (RFC 6750), as pure ASGI."""

from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from tribar.core.errors import Unauthenticated

TenantOf = Callable[[bytes], str | None]
"""The tenant that a key belongs to; None for a key that is not valid. The key is as sent: any bytes, any length."""

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready"})
"""Asked by orchestrators, which have no keys; they tell nothing else."""


class Authentication:
    """Lets requests with a valid key pass, as ``scope["state"]["tenant"]``; refuses the others before their body.

    A preflight never gets here: the CORS layer outside answers it. Keys reach no log, no metric and no message.
    """

    def __init__(self, app: ASGIApp, tenant_of: TenantOf) -> None:
        self._app = app
        self._tenant_of = tenant_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its tenant. Raises ``Unauthenticated``."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            tenant = self._tenant_of(_bearer_token(scope["headers"]))
            if tenant is None:
                raise Unauthenticated("the API key is not valid", code="invalid_api_key")
            scope["state"]["tenant"] = tenant
        await self._app(scope, receive, send)


def _bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """What follows ``Bearer``. With two of the header nobody can tell which one a proxy in front has checked."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) > 1:
        raise Unauthenticated("the Authorization header came more than once", code="invalid_api_key")
    scheme, _, token = (values[0] if values else b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip(b" "):
        raise Unauthenticated("an API key is needed: send Authorization: Bearer KEY", code="invalid_api_key")
    return token.strip(b" ")
