"""The model repository extension: what is there, load, unload."""

from tritonclient.grpc import service_pb2 as pb

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.modelserver.repository.overrides import CONFIG, FILE_PREFIX
from tribar.modelserver.service import LoadParameter, Service


class Repository:
    """Answers calls about the repository. Raises as ``Service``."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def index(self, request: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        """Everything, or with ``ready`` what can infer."""
        _check_repository(request.repository_name)
        entries = [
            pb.RepositoryIndexResponse.ModelIndex(
                name=entry.name, version=entry.version, state=entry.state, reason=entry.reason
            )
            for entry in await self._service.index()
            if not request.ready or entry.state == "READY"
        ]
        return pb.RepositoryIndexResponse(models=entries)

    async def load(self, request: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        """Load or reload, with the configuration and the files that are given instead of the repository's."""
        _check_repository(request.repository_name)
        parameters = {name: _load_parameter(name, value) for name, value in request.parameters.items()}
        await self._service.load(request.model_name, parameters)
        return pb.RepositoryModelLoadResponse()

    async def unload(self, request: pb.RepositoryModelUnloadRequest) -> pb.RepositoryModelUnloadResponse:
        """Stop serving a model."""
        _check_repository(request.repository_name)
        unload_dependents = False
        if "unload_dependents" in request.parameters:
            parameter = request.parameters["unload_dependents"]
            if parameter.WhichOneof("parameter_choice") != "bool_param":
                text = "invalid value type for 'unload_dependents' parameter, expected bool_param."
                raise InvalidRequest(text, param="unload_dependents")
            unload_dependents = parameter.bool_param
        await self._service.unload(request.model_name, unload_dependents=unload_dependents)
        return pb.RepositoryModelUnloadResponse()


def _check_repository(name: str) -> None:
    if name:
        raise Unsupported("'repository_name' specification is not supported", param="repository_name")


def _load_parameter(name: str, parameter: pb.ModelRepositoryParameter) -> LoadParameter:
    if name == CONFIG:
        kind = "string_param"
    elif name.startswith(FILE_PREFIX):
        kind = "bytes_param"
    else:
        raise InvalidRequest(f"unrecognized load parameter '{name}'.", param=name)
    if parameter.WhichOneof("parameter_choice") != kind:
        raise InvalidRequest(f"invalid value type for load parameter '{name}', expected {kind}.", param=name)
    value: LoadParameter = getattr(parameter, kind)
    return value
