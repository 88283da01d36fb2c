"""The standard health service (grpc.health.v1), which orchestrators ask without an API key."""

from typing import Final

from tribar.modelserver.grpc.call import UnaryCall
from tribar.modelserver.grpc.http2.stream import Buffer
from tribar.modelserver.grpc.listener import Method, UnaryMethod
from tribar.modelserver.service import Service

SERVICE_NAME: Final = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""``HealthCheckResponse``, whose only field is the status."""


def health_methods(service: Service) -> dict[str, Method]:
    """``Check`` of the server as a whole, whatever service is asked for, as in Triton."""

    async def check(_: Buffer, __: UnaryCall) -> bytes:
        return _SERVING if service.is_ready() else _NOT_SERVING

    return {"Check": UnaryMethod(check)}
