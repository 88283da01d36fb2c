"""The gRPC front of the model server."""

from tribar.modelserver.grpc.options import GrpcOptions
from tribar.modelserver.grpc.server import GrpcServer

__all__ = ["GrpcOptions", "GrpcServer"]
