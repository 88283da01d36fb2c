"""The one seam where a gRPC status becomes an error of ours."""

import grpc

from tribar.core.errors import DeadlineExceeded, InvalidRequest, Overloaded, TribarError, Unavailable

MAX_QUOTED_CHARS = 500


def status_error(error: grpc.RpcError) -> TribarError:
    """The error for a call that failed. A refused key and an unknown model are no fault of the caller."""
    code, details = error.code(), " ".join((error.details() or "").split())[:MAX_QUOTED_CHARS]
    match code:
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE:
            return InvalidRequest(details or "the request is not valid there")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded("the request's deadline passed at the upstream")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return Overloaded("it takes no more requests now", retry_after_s=1.0)
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return Unavailable("it does not accept the key that it is asked with", code="upstream_key")
        case grpc.StatusCode.NOT_FOUND:
            return Unavailable(f"it does not know the model: {details}", code="upstream_not_found")
        case grpc.StatusCode.UNAVAILABLE:
            return Unavailable(f"it cannot be reached, or broke off: {details}", retry_after_s=1.0)
        case _:
            return Unavailable(f"it failed with {code.name}: {details}")
