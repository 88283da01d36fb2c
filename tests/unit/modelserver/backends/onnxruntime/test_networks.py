"""Whole networks: what comes out is what onnxruntime gives."""

import logging
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from benchmarks.onnx_networks import convolutions, images, quantize, resnet50
from tests.onnx_models import write_model
from tests.unit.modelserver.backends.instance_rig import Array, asked, completed, opened

from tribar.modelserver.backends.onnxruntime import OnnxRuntimeBackend
from tribar.modelserver.backends.onnxruntime.session_options import session_options
from tribar.runtime.sources.fetch import cache_directory
from tribar.runtime.sources.pip_download import download_wheel

BACKEND = OnnxRuntimeBackend()
WHEELS = {"rapidocr": "rapidocr==3.10.0", "silero_vad": "silero-vad==6.2.3"}
"""Models inside: Apache-2.0 (PaddleOCR's) and MIT."""
MAX_WHEEL_BYTES = 64 << 20


def bare(directory: Path, inputs: dict[str, Array], n_threads: int = 1) -> dict[str, Array]:
    options = session_options(completed(BACKEND, directory), n_threads=n_threads)
    session = onnxruntime.InferenceSession(directory / "model.onnx", options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize(
    "batch", [1, 3, pytest.param(8, marks=pytest.mark.long), pytest.param(32, marks=pytest.mark.long)]
)
async def test_resnet50(batch: int, tmp_path: Path) -> None:
    write_model(tmp_path / "m/1", resnet50())
    rows = images(batch, 224)
    expected = bare(tmp_path / "m/1", {"gpu_0/data_0": rows})["gpu_0/softmax_1"]
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        answers = await asked(instance, *({"gpu_0/data_0": rows[row : row + 1]} for row in range(batch)))
    got = np.concatenate([answer.outputs["gpu_0/softmax_1"] for answer in answers])
    assert got.shape == (batch, 1000)
    np.testing.assert_array_equal(got, expected)


async def test_int8(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    write_model(tmp_path / "fp32/1", convolutions(32))
    (tmp_path / "int8/1").mkdir(parents=True)
    quantize(tmp_path / "fp32/1/model.onnx", tmp_path / "int8/1/model.onnx", 32)
    rows = images(6, 32)
    outputs = {}
    for name in ("fp32", "int8"):
        async with opened(BACKEND, tmp_path / name / "1") as instance:
            answers = await asked(instance, {"INPUT0": rows[:4]}, {"INPUT0": rows[4:]})
        outputs[name] = np.concatenate([answer.outputs["OUTPUT0"] for answer in answers])
        np.testing.assert_array_equal(outputs[name], bare(tmp_path / name / "1", {"INPUT0": rows})["OUTPUT0"])
    delta = np.abs(outputs["int8"] - outputs["fp32"]).mean() / outputs["fp32"].std()
    assert 0 < delta < 0.1


def model_in_wheel(wheel: str, member: str, directory: Path) -> None:
    """Put a model of a wheel, fetched once into the cache, into a version's directory."""
    folder = cache_directory() / "test-wheels" / WHEELS[wheel].replace("==", "-")
    found = list((folder / "wheel").glob("*.whl"))
    file = found[0] if found else download_wheel(WHEELS[wheel], folder, MAX_WHEEL_BYTES, lambda n_bytes: None)
    directory.mkdir(parents=True)
    with zipfile.ZipFile(file) as archive:
        (directory / "model.onnx").write_bytes(archive.read(f"{wheel}/{member}"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("member", "shape"),
    [
        ("PP-OCRv6_det_small", (64, 96)),
        ("PP-OCRv6_rec_small", (48, 160)),
        ("ch_ppocr_mobile_v2.0_cls_mobile", (48, 192)),
    ],
)
async def test_rapidocr(member: str, shape: tuple[int, int], tmp_path: Path) -> None:
    """Detection, recognition and orientation of text: any number of images, of any size within a batch."""
    model_in_wheel("rapidocr", f"models/{member}.onnx", tmp_path / "m/1")
    rows = np.random.default_rng(0).normal(size=(3, 3, *shape)).astype(np.float32)
    config = completed(BACKEND, tmp_path / "m/1")
    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    (name,) = (output.name for output in config.output)
    expected = bare(tmp_path / "m/1", {"x": rows})[name]
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        two, one = await asked(instance, {"x": rows[:2]}, {"x": rows[2:]})
    np.testing.assert_array_equal(np.concatenate([two.outputs[name], one.outputs[name]]), expected)


@pytest.mark.long
async def test_silero_vad(tmp_path: Path) -> None:
    """Speech in audio, chunk by chunk: the state goes along with the requests, the sample rate is a scalar."""
    model_in_wheel("silero_vad", "data/silero_vad.onnx", tmp_path / "m/1")
    config = completed(BACKEND, tmp_path / "m/1")
    assert config.max_batch_size == 0
    assert {tensor.name: list(tensor.dims) for tensor in config.input} == {
        "input": [-1, -1], "state": [2, -1, 128], "sr": [1],
    }  # fmt: skip
    rng = np.random.default_rng(0)
    state = expected_state = np.zeros((2, 1, 128), np.float32)
    async with opened(BACKEND, tmp_path / "m/1") as instance:
        for _ in range(5):
            chunk = rng.normal(0, 0.1, (1, 576)).astype(np.float32)
            (answer,) = await asked(instance, {"input": chunk, "state": state, "sr": np.array([16000])})
            expected = bare(tmp_path / "m/1", {"input": chunk, "state": expected_state, "sr": np.array(16000)})
            state, expected_state = answer.outputs["stateN"], expected["stateN"]
            np.testing.assert_array_equal(answer.outputs["output"], expected["output"])
            np.testing.assert_array_equal(state, expected_state)
