"""The backend ``onnxruntime``."""

from functools import partial
from pathlib import Path

import onnxruntime
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.modelserver.backends.base import Instance, InstanceSpec
from tribar.modelserver.backends.batch_instance import BatchInstance
from tribar.modelserver.backends.declared_tensors import complete_tensors
from tribar.modelserver.backends.onnxruntime.network import OnnxNetwork, declared, model_file, open_session
from tribar.modelserver.backends.onnxruntime.providers import CUDA
from tribar.modelserver.backends.onnxruntime.session_options import session_options


class OnnxRuntimeBackend:
    """Sessions of onnxruntime, one for each instance, with a share of the cores."""

    def can_use_gpu(self) -> bool:
        """As ``Backend``: whether this onnxruntime was built for one."""
        return CUDA in onnxruntime.get_available_providers()

    def complete(self, directory: Path, config: ModelConfig) -> ModelConfig:
        """As ``Backend``: loads the file without optimising it, for names, types and shapes."""
        completed = ModelConfig()
        completed.CopyFrom(config)
        options = session_options(config, n_threads=1)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        inputs, outputs = declared(open_session(model_file(directory, config), options))
        complete_tensors(completed, inputs, outputs)
        return completed

    async def open(self, spec: InstanceSpec) -> Instance:
        """As ``Backend``."""
        return await BatchInstance.opened(spec, partial(OnnxNetwork, spec))
