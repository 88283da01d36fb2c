"""The backend ``python``: models that are Python files (Triton's ``TritonPythonModel``)."""

import ast
import json
from pathlib import Path

from prometheus_client import CollectorRegistry
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import BadModelFile, InvalidRequest, Unsupported
from tribar.modelserver.backends.base import Instance, InstanceSpec
from tribar.modelserver.backends.python.completions import Completions
from tribar.modelserver.backends.python.instance import PythonInstance
from tribar.modelserver.backends.python.messages import Complete, Open
from tribar.modelserver.backends.python.model_metrics import ModelMetrics
from tribar.modelserver.model_config.json_form import config_from_json, config_to_json

FINALIZE_GRACE_S = 10.0

DEFAULT_MODEL_FILE = "model.py"


class PythonBackend:
    """Runs each instance in a process of its own.

    ``registry`` gets the metrics that models make; None refuses them. ``finalize_grace_s`` is how long a model may take
    to finish what it is at, and to finalize, before it is killed.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, finalize_grace_s: float = FINALIZE_GRACE_S
    ) -> None:
        self._finalize_grace_s = finalize_grace_s
        self._metrics = None if registry is None else ModelMetrics(registry)
        self._completions = Completions()

    def close(self) -> None:
        """End the processes that complete configurations, whose threads would hold up the end of this one."""
        self._completions.close()

    def can_use_gpu(self) -> bool:
        """As ``Backend``: a model puts itself on the GPU that ``initialize`` is told of."""
        return True

    def complete(self, directory: Path, config: ModelConfig) -> ModelConfig:
        """What the model's ``auto_complete_config`` makes of it."""
        path = _model_file(directory, config)
        if not _may_complete(path):
            return config
        ready = self._completions.ask(Complete(str(path), json.dumps(config_to_json(config))))
        if ready.error is not None:
            raise BadModelFile(f"{path}: {ready.error}")
        return config_from_json(ready.config)

    async def open(self, spec: InstanceSpec) -> Instance:
        """Start a worker and initialize the model in it."""
        path = _model_file(spec.directory, spec.config)
        opening = Open(
            str(path),
            _arguments(spec),
            list(spec.signature.outputs),
            spec.signature.is_decoupled,
            self._metrics is not None,
        )
        instance = PythonInstance(spec, opening, self._metrics, self._finalize_grace_s)
        await instance.start()
        return instance


def _arguments(spec: InstanceSpec) -> dict[str, str]:
    """What ``initialize`` gets."""
    return {
        "model_config": json.dumps(config_to_json(spec.config)),
        "model_instance_kind": spec.device,
        "model_instance_device_id": str(spec.device_id),
        "model_instance_name": spec.name,
        "model_repository": str(spec.directory.parent.absolute()),
        "model_version": spec.version,
        "model_name": spec.config.name,
    }


def _model_file(directory: Path, config: ModelConfig) -> Path:
    name = config.default_model_filename or DEFAULT_MODEL_FILE
    if not name.endswith(".py"):
        raise InvalidRequest(
            f"Model name must end with '.py'. Model name is \"{name}\".", param="default_model_filename"
        )
    if "EXECUTION_ENV_PATH" in config.parameters:
        raise Unsupported(
            "the parameter EXECUTION_ENV_PATH is not supported: models run in the server's own Python environment; "
            "install what the model needs there",
            param="parameters.EXECUTION_ENV_PATH",
        )
    path = (directory / name).absolute()
    if not path.is_file():
        raise BadModelFile(f"Python model file not found in '{path}'")
    return path


def _may_complete(path: Path) -> bool:
    """Whether it is worth a process to ask the model: not where its class plainly has no such method."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise BadModelFile(f"{path}: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "TritonPythonModel":
            is_alone = not node.bases and not node.keywords and not node.decorator_list
            return not is_alone or "auto_complete_config" in ast.unparse(node)
    return True
