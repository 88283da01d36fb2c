"""What goes into a model and comes out: a configuration, read once for the hot path."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tribar.core.tensors import DataType


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model.

    ``dims`` are the configured ones, without the batch dimension; -1 is any size, also 0. ``reshape`` is the shape
    that the model itself sees, None where that is ``dims``. ``labels`` name the classes of an output.
    """

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    is_optional: bool = False
    is_ragged: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A model as its callers see it. ``max_batch_size`` 0 means that requests have no batch dimension.

    ``versions`` are those that can be asked now, in numeric order.
    """

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    max_batch_size: int = 0
    is_decoupled: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)

    def full_shape(self, spec: TensorSpec) -> tuple[int, ...]:
        """The shape as the metadata tells it: with -1 for the batch dimension where there is one."""
        return (-1, *spec.dims) if self.max_batch_size > 0 else spec.dims
