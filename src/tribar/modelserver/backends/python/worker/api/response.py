"""A response as a model makes or gets it."""

import json
from collections.abc import Collection, Mapping, Sequence

from tribar.core.inference import ParameterValue
from tribar.modelserver.backends.python.messages import WireResponse
from tribar.modelserver.backends.python.parcel import Parcel
from tribar.modelserver.backends.python.worker.api.errors import TritonError, TritonModelException
from tribar.modelserver.backends.python.worker.api.tensor import Tensor, add_tensor
from tribar.modelserver.backends.python.worker.failure import encodable


class InferenceResponse:
    """Output tensors, or an error. Raises ``TypeError`` for arguments of the wrong types."""

    __slots__ = ("_error", "_outputs", "_parameters")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        for tensor in output_tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError("InferenceResponse: output_tensors must be a list of Tensor")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse: error must be a TritonError, not {type(error).__name__}")
        self._outputs = list(output_tensors)
        self._error = error
        self._parameters = checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        """Its tensors; none where it has an error."""
        return self._outputs

    def has_error(self) -> bool:
        """Whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error."""
        return self._error

    def parameters(self) -> str:
        """Its parameters, a JSON object."""
        return json.dumps(self._parameters)

    def parameter_values(self) -> dict[str, ParameterValue]:
        """Its parameters."""
        return self._parameters


def checked_parameters(parameters: Mapping[str, ParameterValue] | None) -> dict[str, ParameterValue]:
    """A model's parameters. Raises ``TritonModelException`` where a name or value has no place in the protocol."""
    if not parameters:
        return {}
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(name)}")
        if not isinstance(value, bool | int | str | float):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise TritonModelException(f"Expect parameters values to fit in 64 bits, parameter '{name}' does not")
        if encodable(text := f"{name}{value}") != text:
            raise TritonModelException(f"Expect parameters to be valid Unicode, found {name!r}: {value!r}")
    return dict(parameters)


def to_wire(response: InferenceResponse, wanted: Collection[str], parcel: Parcel) -> WireResponse:
    """``response`` with the wanted outputs, whose tensors are added to ``parcel``.

    What nobody asked for, or the configuration does not know, is left out. Raises ``TritonModelException`` where an
    output comes twice.
    """
    error = response.error()
    if error is not None:
        return WireResponse(error=error.message(), code=error.code().name)
    wires = []
    tensors = response.output_tensors()
    for i, tensor in enumerate(tensors):
        name = tensor.name()
        if i > 0 and any(other.name() == name for other in tensors[:i]):
            raise TritonModelException(f"the response has two tensors named '{name}'")
        if name in wanted:
            wires.append(add_tensor(tensor, parcel))
    return WireResponse(wires, response.parameter_values())
