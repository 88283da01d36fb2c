from pathlib import Path

import pytest

from tribar.core.errors import InvalidRequest
from tribar.core.tensors import DataType
from tribar.modelserver.model_config import complete, data_type_of, parse_config, read_labels, signature_of
from tribar.modelserver.signature import TensorSpec

TEXT = """
backend: "python" max_batch_size: 8 model_transaction_policy { decoupled: true }
input [ { name: "text" data_type: TYPE_STRING dims: -1 optional: true allow_ragged_batch: true },
        { name: "scalar" data_type: TYPE_BF16 dims: 1 reshape { shape: [] } } ]
output { name: "scores" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "labels.txt" }
parameters { key: "k" value { string_value: "v" } }
"""


def test_a_signature_is_what_the_configuration_says(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("tabby cat\r\n\ndog\n")
    config = complete(parse_config(TEXT, file="f"), name="m", directory=tmp_path)
    signature = signature_of(config, versions=[10, 9], labels=read_labels(config, tmp_path))
    assert (signature.name, signature.versions, signature.platform) == ("m", ("9", "10"), "python")
    assert (signature.max_batch_size, signature.is_decoupled, dict(signature.parameters)) == (8, True, {"k": "v"})
    assert list(signature.inputs.values()) == [
        TensorSpec("text", DataType.BYTES, (-1,), is_optional=True, is_ragged=True),
        TensorSpec("scalar", DataType.BF16, (1,), reshape=()),
    ]
    assert signature.outputs["scores"] == TensorSpec("scores", DataType.FP32, (2,), labels=("tabby cat", "", "dog"))
    assert signature.full_shape(signature.inputs["text"]) == (-1, -1)


def test_the_platform_is_the_backend_where_none_is_set(tmp_path: Path) -> None:
    config = complete(parse_config('backend: "onnxruntime"', file="f"), name="m", directory=tmp_path)
    assert signature_of(config, versions=[1]).platform == "onnxruntime_onnx"


def test_every_data_type_has_its_counterpart() -> None:
    assert [data_type_of(number) for number in range(1, 15)] == [
        *(DataType.BOOL, DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64),
        *(DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64),
        *(DataType.FP16, DataType.FP32, DataType.FP64, DataType.BYTES, DataType.BF16),
    ]


@pytest.mark.parametrize(("content", "reason"), [(None, "cannot read"), (b"\xff\xfe", "is no UTF-8 text")])
def test_labels_that_cannot_be_read(content: bytes | None, reason: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "labels.txt").write_bytes(content)
    with pytest.raises(InvalidRequest, match=reason) as refused:
        read_labels(parse_config(TEXT, file="f"), tmp_path)
    assert refused.value.param == "output[0].label_filename"


def test_an_empty_file_has_no_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").touch()
    assert read_labels(parse_config(TEXT, file="f"), tmp_path) == {"scores": ()}
