"""The standard health service (grpc.health.v1), which orchestrators ask without an API key."""

from typing import Any, Final

import grpc

from tribar.modelserver.service import Service

SERVICE_NAME: Final = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""``HealthCheckResponse``, whose only field is the status."""


def health_handlers(service: Service) -> dict[str, grpc.RpcMethodHandler]:
    """``Check`` of the server as a whole, whatever service is asked for, as in Triton."""

    async def check(_: bytes, __: Any) -> bytes:  # noqa: ANN401 -- grpc has no types
        return _SERVING if service.is_ready() else _NOT_SERVING

    return {"Check": grpc.unary_unary_rpc_method_handler(check)}
