"""The gRPC front of the model server: ``inference.GRPCInferenceService`` and ``grpc.health.v1.Health``."""

from tritonclient.grpc import service_pb2 as pb

from tribar.modelserver.grpc.calls import Calls, TenantOf
from tribar.modelserver.grpc.descriptions import Descriptions
from tribar.modelserver.grpc.health import SERVICE_NAME as HEALTH
from tribar.modelserver.grpc.health import health_methods
from tribar.modelserver.grpc.infer_reader import InferReader
from tribar.modelserver.grpc.infer_writer import InferWriter
from tribar.modelserver.grpc.inference import Inference
from tribar.modelserver.grpc.listener import Listener, Method
from tribar.modelserver.grpc.memory_regions import MemoryRegions
from tribar.modelserver.grpc.options import GrpcOptions
from tribar.modelserver.grpc.repository import Repository
from tribar.modelserver.grpc.settings import Settings
from tribar.modelserver.grpc.stream import StreamInference
from tribar.modelserver.service import Service
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory

INFERENCE = "inference.GRPCInferenceService"


class GrpcServer:
    """Serves ``service`` at ``address`` (host:port, port 0 for a free one) on the event loop that starts it."""

    def __init__(
        self,
        service: Service,
        *,
        shared_memory: SharedMemory,
        settings: ServerSettings,
        address: str,
        options: GrpcOptions | None = None,
        tenant_of: TenantOf | None = None,
        version: str = "",
    ) -> None:
        """Without ``tenant_of`` everybody may ask. ``version`` is the server's, for the metadata."""
        options = options or GrpcOptions()
        self._address = address
        inference = _inference_methods(service, shared_memory, settings, options, Calls(tenant_of), version)
        paths = {f"/{INFERENCE}/{name}": method for name, method in inference.items()}
        paths |= {f"/{HEALTH}/{name}": method for name, method in health_methods(service).items()}
        self._listener = Listener(paths, options)

    async def start(self) -> int:
        """Listen, and tell the port. Raises ``Conflict`` where the address cannot be had."""
        return await self._listener.start(self._address)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give those inside ``grace_s``, then cancel them. Idempotent."""
        await self._listener.stop(grace_s)


def _inference_methods(
    service: Service,
    shared_memory: SharedMemory,
    settings: ServerSettings,
    options: GrpcOptions,
    calls: Calls,
    version: str,
) -> dict[str, Method]:
    reader, writer = InferReader(shared_memory, service.check_request), InferWriter(service.signature)
    unary = Inference(service, reader, writer)
    stream = StreamInference(service, reader, writer, options.max_stream_requests)
    told = Descriptions(service, version)
    repository = Repository(service)
    memory = MemoryRegions(shared_memory)
    set_ = Settings(settings, service)
    return {
        "ServerLive": calls.plain(pb.ServerLiveRequest, told.server_live),
        "ServerReady": calls.plain(pb.ServerReadyRequest, told.server_ready),
        "ModelReady": calls.plain(pb.ModelReadyRequest, told.model_ready),
        "ServerMetadata": calls.plain(pb.ServerMetadataRequest, told.server_metadata),
        "ModelMetadata": calls.plain(pb.ModelMetadataRequest, told.model_metadata),
        "ModelInfer": calls.unary(unary.model_infer),
        "ModelStreamInfer": calls.stream(stream.model_stream_infer),
        "ModelConfig": calls.plain(pb.ModelConfigRequest, told.model_config),
        "ModelStatistics": calls.plain(pb.ModelStatisticsRequest, told.model_statistics),
        "RepositoryIndex": calls.plain(pb.RepositoryIndexRequest, repository.index),
        "RepositoryModelLoad": calls.plain(pb.RepositoryModelLoadRequest, repository.load),
        "RepositoryModelUnload": calls.plain(pb.RepositoryModelUnloadRequest, repository.unload),
        "SystemSharedMemoryStatus": calls.plain(pb.SystemSharedMemoryStatusRequest, memory.system_status),
        "SystemSharedMemoryRegister": calls.plain(pb.SystemSharedMemoryRegisterRequest, memory.system_register),
        "SystemSharedMemoryUnregister": calls.plain(pb.SystemSharedMemoryUnregisterRequest, memory.system_unregister),
        "CudaSharedMemoryStatus": calls.plain(pb.CudaSharedMemoryStatusRequest, memory.cuda_status),
        "CudaSharedMemoryRegister": calls.plain(pb.CudaSharedMemoryRegisterRequest, memory.cuda_register),
        "CudaSharedMemoryUnregister": calls.plain(pb.CudaSharedMemoryUnregisterRequest, memory.cuda_unregister),
        "TraceSetting": calls.plain(pb.TraceSettingRequest, set_.trace),
        "LogSettings": calls.plain(pb.LogSettingsRequest, set_.log),
    }
