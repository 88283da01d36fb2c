"""The vocabulary of inference on tensors: what is asked of a model, and what comes back (KServe v2 with Triton's
extensions: classification, parameters, schedule policy, sequences)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from tribar.core.errors import TribarError
from tribar.core.tensors import Tensor

ParameterValue = bool | int | float | str
Parameters = Mapping[str, ParameterValue]


class InferRequest(NamedTuple):
    """One inference, as HTTP, gRPC, an ensemble or a model (business logic scripting) asks for it. Made by keywords.

    A frozen dataclass would cost several times as much to make.

    ``model_version`` "" lets the model's version policy choose. ``outputs`` are the names that are wanted, None all of
    them. ``priority`` 0 is the model's default, 1 the most urgent. ``timeout_us`` bounds the time in the queue, 0 is
    the model's own. ``deadline_s`` (monotonic) is when the caller stops to wait, None never. ``sequence_id`` 0 and ""
    belong to no sequence. ``parameters`` are those that the protocol gives no meaning to.
    """

    model_name: str
    model_version: str = ""
    id: str = ""
    inputs: Sequence[Tensor] = ()
    outputs: Sequence[str] | None = None
    parameters: Parameters = MappingProxyType({})
    priority: int = 0
    timeout_us: int = 0
    deadline_s: float | None = None
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False


@dataclass(slots=True, kw_only=True)
class InferResponse:
    """One response. A decoupled model gives any number for a request; ``is_final`` is set on the last.

    Never written once it is made, like a request.

    ``outputs`` may be empty on a final response that only ends the request. ``error`` stands in the place of outputs
    where a decoupled model failed with this response and goes on; an error that ends a request is raised instead.
    """

    model_name: str
    model_version: str
    id: str = ""
    outputs: Sequence[Tensor] = ()
    parameters: Parameters = field(default_factory=dict)
    is_final: bool = True
    error: TribarError | None = None
