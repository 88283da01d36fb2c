"""ONNX networks to measure: ResNet-50 without its weights, and a small one with random weights, also in int8."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

IMAGE_SIZE = 112
_CHANNELS = (32, 64, 128, 128, 256, 256)
_STRIDES = (2, 2, 1, 2, 1, 2)
_CALIBRATION_BATCHES = 8


def resnet50() -> onnx.ModelProto:
    """ResNet-50 as the ``onnx`` package has it for tests, its weights all equal, with any number of images."""
    model = onnx.load(Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for initializer in model.graph.initializer:
        # the shape of the one Reshape, [1, 2048]: 0 keeps the batch, -1 is the rest
        if initializer.name in {name for node in model.graph.node if node.op_type == "Reshape" for name in node.input}:
            initializer.CopyFrom(numpy_helper.from_array(np.array([0, -1], np.int64), initializer.name))
    return model


def convolutions(image_size: int = IMAGE_SIZE) -> onnx.ModelProto:
    """INPUT0, images of 3 channels, to OUTPUT0, logits of 10 classes: convolutions with random weights."""
    rng = np.random.default_rng(0)
    nodes, weights, last, n_in = [], [], "INPUT0", 3
    for layer, (n_out, stride) in enumerate(zip(_CHANNELS, _STRIDES, strict=True)):
        weights.append(_weights(rng, f"weight{layer}", (n_out, n_in, 3, 3), n_in * 9))
        conv = [last, f"weight{layer}"]
        nodes.append(helper.make_node("Conv", conv, [f"conv{layer}"], pads=[1] * 4, strides=[stride] * 2))
        nodes.append(helper.make_node("Relu", [f"conv{layer}"], [f"relu{layer}"]))
        last, n_in = f"relu{layer}", n_out
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["features"]))
    weights.append(_weights(rng, "classes", (n_in, 10), n_in))
    nodes.append(helper.make_node("MatMul", ["features", "classes"], ["OUTPUT0"]))
    shapes = {"INPUT0": ("batch", 3, image_size, image_size), "OUTPUT0": ("batch", 10)}
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "convolutions", tensors[:1], tensors[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def images(n: int, image_size: int = IMAGE_SIZE, seed: int = 0) -> npt.NDArray[np.float32]:
    """Smooth random images: neighbouring pixels are alike, as in photographs."""
    coarse = np.random.default_rng(seed).normal(size=(n, 3, image_size // 8 + 1, image_size // 8 + 1))
    return coarse.repeat(8, 2).repeat(8, 3)[:, :, :image_size, :image_size].astype(np.float32)


def quantize(source: Path, target: Path, image_size: int = IMAGE_SIZE) -> None:
    """``convolutions`` in int8, as quantize and dequantize nodes, calibrated on images."""
    quantize_static(source, target, _Calibration(image_size), quant_format=QuantFormat.QDQ, per_channel=True)


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, image_size: int) -> None:
        self._batches: Iterator[npt.NDArray[np.float32]] = (
            images(4, image_size, seed) for seed in range(1, _CALIBRATION_BATCHES + 1)
        )

    def get_next(self) -> dict[str, npt.NDArray[np.float32]] | None:
        """The next inputs."""
        batch = next(self._batches, None)
        return None if batch is None else {"INPUT0": batch}


def _weights(rng: np.random.Generator, name: str, shape: tuple[int, ...], fan_in: int) -> onnx.TensorProto:
    """He's initialisation: activations keep their size from layer to layer."""
    return numpy_helper.from_array(rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32), name)
