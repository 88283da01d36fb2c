"""A loaded ONNX model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnxruntime
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import BadModelFile, Internal
from tribar.core.tensors import DataType
from tribar.modelserver.backends.base import InstanceSpec
from tribar.modelserver.backends.declared_tensors import DeclaredTensor
from tribar.modelserver.backends.onnxruntime.providers import CPU, Provider, check_in_use, providers
from tribar.modelserver.backends.onnxruntime.session_options import run_options, session_options
from tribar.modelserver.backends.onnxruntime.values import DATA_TYPES, array_of, bytes_of, ort_value, text_of
from tribar.modelserver.backends.stacking import Array


class OnnxNetwork:
    """A ``Network`` over an onnxruntime session, on the device of ``spec``."""

    def __init__(self, spec: InstanceSpec) -> None:
        """Raises ``BadModelFile``, and ``Unsupported`` where the device's execution provider is missing."""
        config = spec.config
        chosen = providers(config, spec.device, spec.device_id, onnxruntime.get_available_providers())
        options = session_options(config, n_threads=spec.n_threads)
        self._session = open_session(model_file(spec.directory, config), options, chosen)
        check_in_use(config, chosen, self._session.get_providers())
        self._run_options = run_options(config)
        self._types = {name: tensor.datatype for name, tensor in spec.signature.inputs.items()}
        self._output_types = {name: tensor.datatype for name, tensor in spec.signature.outputs.items()}
        self._scalars = _scalars(spec, self._session)
        self._has_text = DataType.BYTES in {*self._types.values(), *self._output_types.values()}
        self._has_bf16 = DataType.BF16 in {*self._types.values(), *self._output_types.values()}

    def compute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """As ``Network``. Raises ``Internal`` with what onnxruntime says, ``InvalidRequest`` for text not in UTF-8."""
        if self._scalars:
            inputs = {name: array.reshape(()) if name in self._scalars else array for name, array in inputs.items()}
        if self._has_text:
            inputs = {
                name: text_of(name, array) if self._types.get(name) is DataType.BYTES else array
                for name, array in inputs.items()
            }
        try:
            arrays = self._run(inputs, outputs)
        except Exception as error:
            raise Internal(f"onnxruntime failed: {error}") from error
        if self._has_text:
            arrays = [
                bytes_of(array) if self._output_types[name] is DataType.BYTES else array
                for name, array in zip(outputs, arrays, strict=True)
            ]
        return [
            array.reshape(1) if name in self._scalars else array for name, array in zip(outputs, arrays, strict=True)
        ]

    def _run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        if not self._has_bf16:
            arrays: Sequence[Array] = self._session.run(outputs, inputs, self._run_options)
            return arrays
        feeds = {name: ort_value(array, self._types[name]) for name, array in inputs.items()}
        values = self._session.run_with_ort_values(outputs, feeds, self._run_options)
        return [array_of(value, self._output_types[name]) for name, value in zip(outputs, values, strict=True)]


def model_file(directory: Path, config: ModelConfig) -> Path:
    """The ONNX file of a version. A directory in its place has the file ``model.onnx`` and its external data."""
    path = directory / (config.default_model_filename or "model.onnx")
    return path / "model.onnx" if path.is_dir() else path


def open_session(
    file: Path, options: onnxruntime.SessionOptions, chosen: Sequence[Provider] = ((CPU, {}),)
) -> onnxruntime.InferenceSession:
    """Raises ``BadModelFile`` naming the file."""
    if not file.is_file():
        raise BadModelFile(f"there is no file {file}")
    try:
        # without fall-back: what was asked for is used, or an error says why not
        return onnxruntime.InferenceSession(str(file), options, providers=list(chosen), enable_fallback=0)
    except Exception as error:
        raise BadModelFile(f"{file}: {error}") from error


def declared(session: onnxruntime.InferenceSession) -> tuple[Sequence[DeclaredTensor], Sequence[DeclaredTensor]]:
    """Inputs and outputs as the file has them; initializers that may be given as inputs are optional ones."""
    inputs = [_declared(node, is_optional=False) for node in session.get_inputs()]
    inputs += [_declared(node, is_optional=True) for node in session.get_overridable_initializers()]
    return inputs, [_declared(node, is_optional=False) for node in session.get_outputs()]


def _declared(node: onnxruntime.NodeArg, *, is_optional: bool) -> DeclaredTensor:
    shape = tuple(size if isinstance(size, int) and size >= 0 else -1 for size in node.shape)
    return DeclaredTensor(node.name, DATA_TYPES.get(node.type), node.type, shape, is_optional)


def _scalars(spec: InstanceSpec, session: onnxruntime.InferenceSession) -> frozenset[str]:
    """Tensors that are [1] for requests, which have no scalars, and nothing in brackets in the model."""
    if spec.signature.max_batch_size > 0:
        return frozenset()
    known = {**spec.signature.outputs, **spec.signature.inputs}
    inputs, outputs = declared(session)
    without_shape = {tensor.name for tensor in (*inputs, *outputs) if not tensor.shape}
    return frozenset(name for name in without_shape & known.keys() if known[name].dims == (1,))
