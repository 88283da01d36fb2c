"""Small ONNX models, made by the tests that need them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

Shape = Sequence[str | int | None] | None


def tensor(name: str, shape: Shape, data_type: int = TensorProto.FLOAT) -> Any:
    """An input or output of a graph."""
    return helper.make_tensor_value_info(name, data_type, shape)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], initializers: Sequence[Any] = ()) -> Any:
    """A model of the opset that every supported onnxruntime has."""
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def identity(shape: Shape = ("batch", "width"), data_type: int = TensorProto.FLOAT) -> Any:
    """OUTPUT0 is INPUT0."""
    node = helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])
    return model([node], [tensor("INPUT0", shape, data_type)], [tensor("OUTPUT0", shape, data_type)])


def write_model(directory: Path, proto: Any, name: str = "model.onnx") -> None:
    """Into a version's directory."""
    directory.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, directory / name)
