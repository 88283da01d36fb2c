"""Assembles ``triton_python_backend_utils``, so that a ``model.py`` can import it."""

import sys
import types
from typing import Any, TypeVar

from tribar.modelserver.backends.python.worker.api import byte_tensors, datatypes, lookup
from tribar.modelserver.backends.python.worker.api.control import ModelControl
from tribar.modelserver.backends.python.worker.api.errors import TritonError, TritonModelException
from tribar.modelserver.backends.python.worker.api.logger import Logger
from tribar.modelserver.backends.python.worker.api.metrics import MetricFamily
from tribar.modelserver.backends.python.worker.api.model_config import ModelConfig
from tribar.modelserver.backends.python.worker.api.placement import InferenceTrace, MemoryType, PreferredMemory
from tribar.modelserver.backends.python.worker.api.request import RELEASE_ALL, InferenceRequest
from tribar.modelserver.backends.python.worker.api.response import InferenceResponse
from tribar.modelserver.backends.python.worker.api.sender import RESPONSE_COMPLETE_FINAL, InferenceResponseSender
from tribar.modelserver.backends.python.worker.api.tensor import Tensor
from tribar.modelserver.backends.python.worker.session import Session

MODULE_NAME = "triton_python_backend_utils"

Class = TypeVar("Class")

_SESSION_FREE: dict[str, Any] = {
    "InferenceResponse": InferenceResponse,
    "InferenceResponseSender": InferenceResponseSender,
    "InferenceTrace": InferenceTrace,
    "ModelConfig": ModelConfig,
    "PreferredMemory": PreferredMemory,
    "TRITONSERVER_MEMORY_CPU": MemoryType.CPU,
    "TRITONSERVER_MEMORY_GPU": MemoryType.GPU,
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END": 2,
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START": 1,
    "TRITONSERVER_REQUEST_RELEASE_ALL": RELEASE_ALL,
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE": 2,
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL": RESPONSE_COMPLETE_FINAL,
    "TRITON_STRING_TO_NUMPY": datatypes.TRITON_STRING_TO_NUMPY,
    "Tensor": Tensor,
    "TritonError": TritonError,
    "TritonModelException": TritonModelException,
    "deserialize_bytes_tensor": byte_tensors.deserialize_bytes_tensor,
    "get_input_config_by_name": lookup.get_input_config_by_name,
    "get_input_tensor_by_name": lookup.get_input_tensor_by_name,
    "get_output_config_by_name": lookup.get_output_config_by_name,
    "get_output_tensor_by_name": lookup.get_output_tensor_by_name,
    "numpy_to_triton_type": datatypes.numpy_to_triton_type,
    "serialize_byte_tensor": byte_tensors.serialize_byte_tensor,
    "triton_string_to_numpy": datatypes.triton_string_to_numpy,
    "triton_to_numpy_type": datatypes.triton_to_numpy_type,
    "using_decoupled_model_transaction_policy": lookup.using_decoupled_model_transaction_policy,
}


def install(session: Session) -> type[InferenceRequest]:
    """Make the module importable for this worker's model; returns its request class."""
    control = ModelControl(session)
    request_class = _bound(InferenceRequest, session)
    _install(
        session.model_directory,
        InferenceRequest=request_class,
        Logger=_bound(Logger, session),
        MetricFamily=_bound(MetricFamily, session),
        is_model_ready=control.is_model_ready,
        load_model=control.load_model,
        unload_model=control.unload_model,
    )
    return request_class


def install_offline(path: str) -> None:
    """The module for ``auto_complete_config``, where nothing is served: its classes stand there for annotations."""
    _install(path.rpartition("/")[0], InferenceRequest=InferenceRequest, Logger=Logger, MetricFamily=MetricFamily)


def _install(model_directory: str, **names: object) -> None:
    module = types.ModuleType(MODULE_NAME, "Triton's interface for Python models, provided by tribar.")
    vars(module).update(_SESSION_FREE, get_model_dir=lambda: model_directory, **names)
    sys.modules[MODULE_NAME] = module


def _bound(base: type[Class], session: Session) -> type[Class]:
    return type(base.__name__, (base,), {"session": session, "__slots__": ()})
