"""The shared memory extensions: regions of the system's memory; those of CUDA devices are not offered."""

from tritonclient.grpc import service_pb2 as pb

from tribar.core.errors import NotFound
from tribar.modelserver.shared_memory import SharedMemory, refuse_cuda_region


class MemoryRegions:
    """Answers calls about shared memory. Raises as ``SharedMemory``."""

    def __init__(self, shared_memory: SharedMemory) -> None:
        self._shared_memory = shared_memory

    def system_status(self, request: pb.SystemSharedMemoryStatusRequest) -> pb.SystemSharedMemoryStatusResponse:
        """One region, or all."""
        regions = {
            region.name: pb.SystemSharedMemoryStatusResponse.RegionStatus(
                name=region.name, key=region.key, offset=region.offset, byte_size=region.byte_size
            )
            for region in self._shared_memory.status(request.name)
        }
        return pb.SystemSharedMemoryStatusResponse(regions=regions)

    def system_register(self, request: pb.SystemSharedMemoryRegisterRequest) -> pb.SystemSharedMemoryRegisterResponse:
        """Make a range of a segment known under a name."""
        self._shared_memory.register(request.name, request.key, byte_size=request.byte_size, offset=request.offset)
        return pb.SystemSharedMemoryRegisterResponse()

    def system_unregister(
        self, request: pb.SystemSharedMemoryUnregisterRequest
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        """Forget one region, or all."""
        self._shared_memory.unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    def cuda_status(self, request: pb.CudaSharedMemoryStatusRequest) -> pb.CudaSharedMemoryStatusResponse:
        """There is none."""
        if request.name:
            raise NotFound(f"Unable to find cuda shared memory region: '{request.name}'", param="name")
        return pb.CudaSharedMemoryStatusResponse()

    def cuda_register(self, request: pb.CudaSharedMemoryRegisterRequest) -> pb.CudaSharedMemoryRegisterResponse:
        """Refused."""
        refuse_cuda_region(request.raw_handle)

    def cuda_unregister(self, _: pb.CudaSharedMemoryUnregisterRequest) -> pb.CudaSharedMemoryUnregisterResponse:
        """Nothing to do: there is none."""
        return pb.CudaSharedMemoryUnregisterResponse()
