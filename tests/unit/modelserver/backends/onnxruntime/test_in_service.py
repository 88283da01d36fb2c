"""ONNX files in a repository, without any configuration, as the model server serves them."""

import asyncio
from pathlib import Path

import numpy as np
from tests.onnx_models import identity, write_model

from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.registry import BackendRegistry
from tribar.modelserver.model_service import ModelService
from tribar.modelserver.repository.control import Control
from tribar.modelserver.version_opener import VersionOpener


async def test_a_file_is_all_it_takes(tmp_path: Path) -> None:
    """BUG-061, BUG-076."""
    write_model(tmp_path / "good/1", identity())
    (tmp_path / "broken/1").mkdir(parents=True)
    (tmp_path / "broken/1/model.onnx").write_bytes(b"no model at all")
    service = ModelService([tmp_path], Control(), BackendRegistry(), VersionOpener(n_cores=2))
    await service.start()
    config = service.config("good")
    assert (config.backend, config.max_batch_size, config.instance_group[0].count) == ("onnxruntime", 4, 2)
    arrays = [np.full((1 + width % 2, width), width, np.float32) for width in range(9)]
    requests = [InferRequest(model_name="good", inputs=[Tensor("INPUT0", DataType.FP32, array)]) for array in arrays]
    for _ in range(5):
        responses = await asyncio.gather(*map(service.infer, requests))
        for array, response in zip(arrays, responses, strict=True):
            np.testing.assert_array_equal(response.outputs[0].data, array)
    (broken,) = (entry for entry in await service.index() if entry.name == "broken")
    assert broken.state == "UNAVAILABLE"
    assert "model.onnx" in broken.reason
    await service.close()
