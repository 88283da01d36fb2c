"""Parameters of inference requests and responses (``InferParameter``)."""

from collections.abc import Mapping
from typing import Any, Final

from tritonclient.grpc.service_pb2 import InferParameter

from tribar.core.errors import InvalidRequest
from tribar.core.inference import Parameters, ParameterValue

EMPTY_FINAL_RESPONSE: Final = "triton_enable_empty_final_response"
"""A request of a stream wants a last response of its own after those of a decoupled model."""

_RESERVED_PREFIX: Final = "triton_"
_UINT64: Final = 2**64
_MAX_INT64: Final = 2**63 - 1


def request_fields(given: Mapping[str, InferParameter]) -> tuple[dict[str, Any], bool]:
    """The fields of ``InferRequest`` that the parameters set, and whether an empty final response is wanted.

    Raises ``InvalidRequest`` for values of another kind than a name takes.
    """
    fields: dict[str, Any] = {}
    others: dict[str, ParameterValue] = {}
    wants_empty_final = False
    for name, parameter in given.items():
        kind = parameter.WhichOneof("parameter_choice")
        match name:
            case "priority":
                value = _value(name, parameter, kind, "int64_param", "uint64_param")
                if value < 0:
                    raise InvalidRequest("invalid value for 'priority', expected value >= 0.", param=name)
                fields[name] = value
            case "timeout":
                fields["timeout_us"] = _value(name, parameter, kind, "int64_param") % _UINT64
            case "sequence_id":
                value = _value(name, parameter, kind, "int64_param", "string_param")
                fields[name] = value % _UINT64 if kind == "int64_param" else value
            case "sequence_start" | "sequence_end":
                fields[name] = _value(name, parameter, kind, "bool_param")
            case "triton_enable_empty_final_response":
                wants_empty_final = _value(name, parameter, kind, "bool_param")
            case _:
                others[name] = _other_value(name, parameter, kind)
    if others:
        fields["parameters"] = others
    return fields, wants_empty_final


def tensor_parameter(given: Mapping[str, InferParameter], tensor: str, name: str, kind: str) -> Any:  # noqa: ANN401
    """A parameter of an input or output, None where it is not given. Raises ``InvalidRequest`` for another kind."""
    if name not in given:
        return None
    parameter = given[name]
    if parameter.WhichOneof("parameter_choice") != kind:
        text = f"invalid value type for '{name}' parameter for tensor '{tensor}', expected {kind}."
        raise InvalidRequest(text, param=name)
    return getattr(parameter, kind)


def to_message(value: ParameterValue) -> InferParameter:
    """A parameter of a response."""
    if isinstance(value, bool):
        return InferParameter(bool_param=value)
    if isinstance(value, int):
        return InferParameter(uint64_param=value) if value > _MAX_INT64 else InferParameter(int64_param=value)
    return InferParameter(double_param=value) if isinstance(value, float) else InferParameter(string_param=value)


def to_messages(parameters: Parameters) -> dict[str, InferParameter]:
    """The parameters of a response."""
    return {name: to_message(value) for name, value in parameters.items()}


def _value(name: str, parameter: InferParameter, kind: str | None, *kinds: str) -> Any:  # noqa: ANN401
    if kind not in kinds:
        text = f"invalid value type for '{name}' parameter, expected {' or '.join(kinds)}."
        raise InvalidRequest(text, param=name)
    return getattr(parameter, kind)


def _other_value(name: str, parameter: InferParameter, kind: str | None) -> ParameterValue:
    if name.startswith(_RESERVED_PREFIX):
        text = (
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting "
            f"with 'triton_' are allowed: {EMPTY_FINAL_RESPONSE}"
        )
        raise InvalidRequest(text, param=name)
    if kind is None or kind == "uint64_param":
        text = f"invalid value type for '{name}' parameter, expected int64_param, bool_param, or string_param."
        raise InvalidRequest(text, param=name)
    value: ParameterValue = getattr(parameter, kind)
    return value
