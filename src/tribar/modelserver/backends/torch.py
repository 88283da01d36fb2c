"""The backend ``pytorch``: exported programs (model.pt2) and TorchScript (model.pt). Needs the extra ``torch``.

An exported program tells names, types and shapes of its tensors: inputs are ``forward``'s arguments, outputs the keys
of the dictionary that it returns, or else OUTPUT__0, OUTPUT__1 ... TorchScript tells nothing but the arguments' names,
so the configuration names the tensors. In both, a name may also be Triton's NAME__INDEX, with the place among
arguments or results, and any other name stands for the place that it has in the configuration.
"""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
import torch
from torch.export.passes import move_to_device_pass
from tritonclient.grpc.model_config_pb2 import DataType as ConfigDataType
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import BadModelFile, Internal, TribarError
from tribar.core.tensors import DataType
from tribar.modelserver.backends.base import Device, Instance, InstanceSpec
from tribar.modelserver.backends.batch_instance import BatchInstance
from tribar.modelserver.backends.declared_tensors import DeclaredTensor, complete_tensors
from tribar.modelserver.backends.stacking import Array
from tribar.modelserver.backends.torch_files import TorchFormat, recognised
from tribar.modelserver.model_config.refusal import not_offered, refusal

_DATA_TYPES: Final = {
    torch.bool: DataType.BOOL,
    torch.uint8: DataType.UINT8,
    torch.uint16: DataType.UINT16,
    torch.uint32: DataType.UINT32,
    torch.uint64: DataType.UINT64,
    torch.int8: DataType.INT8,
    torch.int16: DataType.INT16,
    torch.int32: DataType.INT32,
    torch.int64: DataType.INT64,
    torch.float16: DataType.FP16,
    torch.float32: DataType.FP32,
    torch.float64: DataType.FP64,
    torch.bfloat16: DataType.BF16,
}
_TEXT: Final = ConfigDataType.Value("TYPE_STRING")
_CPU: Final = torch.device("cpu")
_loading: Final = Lock()
"""PyTorch reads one exported program at a time: its reader keeps its state in a global variable."""


class TorchBackend:
    """Modules of PyTorch, one for each instance, with a share of the cores."""

    def can_use_gpu(self) -> bool:
        """As ``Backend``: whether this PyTorch was built for one and finds its driver."""
        return torch.cuda.is_available()

    def complete(self, directory: Path, config: ModelConfig) -> ModelConfig:
        """As ``Backend``. ``Unsupported`` for a file that would run code of its own when it is loaded."""
        completed = ModelConfig()
        completed.CopyFrom(config)
        for kind, tensors in (("input", config.input), ("output", config.output)):
            for tensor in tensors:
                if tensor.data_type == _TEXT:
                    raise not_offered(config.name, kind, f"'{tensor.name}': PyTorch has no tensors of strings")
        loaded = _loaded(_model_file(directory, config), _CPU)
        if loaded.is_described:
            inputs = _named(loaded.inputs, [tensor.name for tensor in config.input])
            outputs = _named(loaded.outputs, [tensor.name for tensor in config.output])
            complete_tensors(completed, inputs, outputs)
        elif not (config.input and config.output):
            reason = "TorchScript tells no types and shapes; name all inputs and outputs, or use torch.export"
            raise refusal(config.name, "input", reason)
        return completed

    async def open(self, spec: InstanceSpec) -> Instance:
        """As ``Backend``."""
        return await BatchInstance.opened(spec, partial(TorchNetwork, spec))


class TorchNetwork:
    """A ``Network`` over a module, on the device of ``spec``."""

    def __init__(self, spec: InstanceSpec) -> None:
        """Raises ``BadModelFile``, and ``Unsupported`` for a GPU that PyTorch does not have."""
        self._device = _device(spec)
        # the number is this thread's own; the first look at it, which is over then, sets it to everybody's
        torch.get_num_threads()
        torch.set_num_threads(spec.n_threads)
        loaded = _loaded(_model_file(spec.directory, spec.config), self._device)
        self._module = loaded.module
        self._types = {name: tensor.datatype for name, tensor in spec.signature.inputs.items()}
        self._places = _places(list(self._types), [tensor.name for tensor in loaded.inputs])
        self._outputs = list(spec.signature.outputs)

    def compute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """As ``Network``. Raises ``Internal`` with what PyTorch says."""
        try:
            with torch.inference_mode():
                arguments = {self._places[name]: self._tensor(name, array) for name, array in inputs.items()}
                results = self._module(*(arguments[place] for place in sorted(arguments)))
                return self._chosen(results, outputs)
        except TribarError:
            raise
        except Exception as error:
            raise Internal(f"PyTorch failed: {error}") from error

    def _tensor(self, name: str, array: Array) -> torch.Tensor:
        # a module may write into its arguments, and what is read-only belongs to others
        flags = array.flags
        tensor = torch.from_numpy(array if flags.writeable and flags.c_contiguous else array.copy())
        if self._types[name] is DataType.BF16:
            tensor = tensor.view(torch.bfloat16)
        return tensor.to(self._device)

    def _chosen(self, results: object, names: Sequence[str]) -> Sequence[Array]:
        keys = list(results) if isinstance(results, dict) else []
        values = list(results.values()) if isinstance(results, dict) else _sequence(results)
        places = _places(self._outputs, keys)
        if missing := [name for name in names if places[name] >= len(values)]:
            raise Internal(f"the model gave {len(values)} outputs, and none for '{missing[0]}'")
        return [_array(values[places[name]]) for name in names]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A module, and what its file tells of its tensors: all, or (not ``is_described``) only the inputs' names."""

    module: Callable[..., object]
    inputs: Sequence[DeclaredTensor]
    outputs: Sequence[DeclaredTensor]
    is_described: bool


def _loaded(file: Path, device: torch.device) -> _Loaded:
    kind, pickles = recognised(file)
    try:
        if kind is TorchFormat.TORCHSCRIPT:
            return _torchscript(file, device)
        for pickle in pickles:
            # what passes here is read in the same way by the loader below
            torch.load(io.BytesIO(pickle), weights_only=True)
        with _loading:
            return _exported(file, device)
    except Exception as error:
        raise BadModelFile(f"{file}: {error}") from error


def _torchscript(file: Path, device: torch.device) -> _Loaded:
    warnings.filterwarnings("ignore", r".torch\.jit\.load. is deprecated", DeprecationWarning)
    module = torch.jit.load(file, map_location=device)  # type: ignore[no-untyped-call]
    module.eval()
    arguments = [argument.name for argument in module.forward.schema.arguments[1:]]
    return _Loaded(module, [DeclaredTensor(name, None, "?", ()) for name in arguments], (), is_described=False)


def _exported(file: Path, device: torch.device) -> _Loaded:
    program = torch.export.load(file)
    if device != _CPU:
        program = move_to_device_pass(program, device)
    nodes = {node.name: node for node in program.graph.nodes}
    described = program.graph_signature
    entry = program.module_call_graph[0].signature
    arguments = list(entry.forward_arg_names or []) if entry is not None else []
    if len(arguments) != len(described.user_inputs):
        arguments = [str(name) for name in described.user_inputs]
    keys = entry.out_spec.context if entry is not None and entry.out_spec.type is dict else None
    results = [str(key) for key in keys or (f"OUTPUT__{index}" for index in range(len(described.user_outputs)))]
    return _Loaded(
        program.module(),
        [_declared(name, nodes[str(node)]) for name, node in zip(arguments, described.user_inputs, strict=True)],
        [_declared(name, nodes[str(node)]) for name, node in zip(results, described.user_outputs, strict=True)],
        is_described=True,
    )


def _declared(name: str, node: torch.fx.Node) -> DeclaredTensor:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return DeclaredTensor(name, None, type(value).__name__, ())
    shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
    return DeclaredTensor(name, _DATA_TYPES.get(value.dtype), str(value.dtype), shape)


def _named(declared: Sequence[DeclaredTensor], names: Sequence[str]) -> Sequence[DeclaredTensor]:
    """As the configuration calls them, where it does."""
    places = _places(names, [tensor.name for tensor in declared])
    names_by_place = {place: name for name, place in places.items()}
    return [replace(tensor, name=names_by_place.get(place, tensor.name)) for place, tensor in enumerate(declared)]


def _places(names: Sequence[str], known: Sequence[str]) -> dict[str, int]:
    """Which of the arguments or results each name means; ``known`` are their own names."""
    return {name: _place(name, position, known) for position, name in enumerate(names)}


def _place(name: str, position: int, known: Sequence[str]) -> int:
    if name in known:
        return known.index(name)
    _, separator, index = name.rpartition("__")
    return int(index) if separator and index.isascii() and index.isdigit() else position


def _sequence(results: object) -> Sequence[object]:
    return results if isinstance(results, tuple | list) else [results]


def _array(result: object) -> Array:
    if not isinstance(result, torch.Tensor):
        raise Internal(f"the model gave a {type(result).__name__} in place of a tensor")
    tensor = result.detach().to(_CPU)
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    return np.ascontiguousarray(tensor.numpy())


def _device(spec: InstanceSpec) -> torch.device:
    if spec.device is not Device.GPU:
        return _CPU
    if not torch.cuda.is_available():
        raise not_offered(spec.config.name, "instance_group", "this PyTorch has no GPU; use KIND_CPU or KIND_AUTO")
    return torch.device("cuda", spec.device_id)


def _model_file(directory: Path, config: ModelConfig) -> Path:
    return directory / (config.default_model_filename or "model.pt2")
