"""What the server and its models say about themselves: health, metadata, configuration, statistics."""

from tritonclient.grpc import service_pb2 as pb

from tribar.modelserver import server_metadata
from tribar.modelserver.service import Service
from tribar.modelserver.signature import Signature, TensorSpec
from tribar.modelserver.statistics import BatchStatistics, Duration, ModelStatistics, ResponseStatistics
from tribar.modelserver.version_number import version_number


class Descriptions:
    """Answers calls about the server and its models. Raises as ``Service``."""

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._server_version = version

    def server_live(self, _: pb.ServerLiveRequest) -> pb.ServerLiveResponse:
        """Whether the server answers at all."""
        return pb.ServerLiveResponse(live=self._service.is_live())

    def server_ready(self, _: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        """Whether it serves."""
        return pb.ServerReadyResponse(ready=self._service.is_ready())

    def model_ready(self, request: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        """Whether a model can infer: false for what is not there, an error for what is no version."""
        if request.version:
            version_number(request.version)
        return pb.ModelReadyResponse(ready=self._service.is_model_ready(request.name, request.version))

    def server_metadata(self, _: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        """Name, version and what of the protocol's extensions is there."""
        return pb.ServerMetadataResponse(
            name=server_metadata.NAME, version=self._server_version, extensions=server_metadata.EXTENSIONS
        )

    def model_metadata(self, request: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        """Inputs and outputs of a model."""
        signature = self._service.signature(request.name, request.version)
        return pb.ModelMetadataResponse(
            name=signature.name,
            versions=[request.version] if request.version else signature.versions,
            platform=signature.platform,
            inputs=[_tensor(signature, spec) for spec in signature.inputs.values()],
            outputs=[_tensor(signature, spec) for spec in signature.outputs.values()],
        )

    def model_config(self, request: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        """The completed configuration."""
        return pb.ModelConfigResponse(config=self._service.config(request.name, request.version))

    def model_statistics(self, request: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        """Of one version, a model, or all."""
        found = self._service.statistics(request.name, request.version)
        return pb.ModelStatisticsResponse(model_stats=[_statistics(statistics) for statistics in found])


def _tensor(signature: Signature, spec: TensorSpec) -> pb.ModelMetadataResponse.TensorMetadata:
    return pb.ModelMetadataResponse.TensorMetadata(
        name=spec.name, datatype=spec.datatype, shape=signature.full_shape(spec)
    )


def _statistics(found: ModelStatistics) -> pb.ModelStatistics:
    return pb.ModelStatistics(
        name=found.name,
        version=found.version,
        last_inference=found.last_inference_ms,
        inference_count=found.inference_count,
        execution_count=found.execution_count,
        inference_stats=pb.InferStatistics(
            success=_duration(found.success),
            fail=_duration(found.fail),
            queue=_duration(found.queue),
            compute_input=_duration(found.compute_input),
            compute_infer=_duration(found.compute_infer),
            compute_output=_duration(found.compute_output),
            cache_hit=_duration(found.cache_hit),
            cache_miss=_duration(found.cache_miss),
        ),
        batch_stats=[_batch(size, found.batches[size]) for size in sorted(found.batches)],
        response_stats={index: _response(response) for index, response in found.responses.items()},
    )


def _batch(size: int, found: BatchStatistics) -> pb.InferBatchStatistics:
    return pb.InferBatchStatistics(
        batch_size=size,
        compute_input=_duration(found.compute_input),
        compute_infer=_duration(found.compute_infer),
        compute_output=_duration(found.compute_output),
    )


def _response(found: ResponseStatistics) -> pb.InferResponseStatistics:
    return pb.InferResponseStatistics(
        compute_infer=_duration(found.compute_infer),
        compute_output=_duration(found.compute_output),
        success=_duration(found.success),
        fail=_duration(found.fail),
        empty_response=_duration(found.empty_response),
        cancel=_duration(found.cancel),
    )


def _duration(found: Duration) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=found.count, ns=found.ns)
