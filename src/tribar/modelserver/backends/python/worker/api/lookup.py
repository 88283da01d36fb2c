"""Find things by their names."""

from collections.abc import Mapping, Sequence
from typing import Any

from tribar.modelserver.backends.python.worker.api.request import InferenceRequest
from tribar.modelserver.backends.python.worker.api.response import InferenceResponse
from tribar.modelserver.backends.python.worker.api.tensor import Tensor


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """An input of a request."""
    return _named(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """An output of a response."""
    return _named(inference_response.output_tensors(), name)


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What the configuration (a dict) says of an input."""
    return _configured(model_config.get("input", ()), name)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What the configuration (a dict) says of an output."""
    return _configured(model_config.get("output", ()), name)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    """Whether the configuration (a dict) makes the model decoupled."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def _named(tensors: Sequence[Tensor], name: str) -> Tensor | None:
    for tensor in tensors:
        if tensor.name() == name:
            return tensor
    return None


def _configured(entries: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((entry for entry in entries if entry["name"] == name), None)
