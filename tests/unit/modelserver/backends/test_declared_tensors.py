import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.core.tensors import DataType
from tribar.modelserver.backends.declared_tensors import DeclaredTensor, complete_tensors
from tribar.modelserver.model_config import parse_config

X = DeclaredTensor("x", DataType.FP32, "float", (-1, 3, -1))
IDS = DeclaredTensor("ids", DataType.INT64, "int64", (-1,))
Y = DeclaredTensor("y", DataType.BYTES, "string", (-1, 2))
FIXED = DeclaredTensor("x", DataType.FP32, "float", (1, 3))


def filled(text: str, inputs: list[DeclaredTensor], outputs: list[DeclaredTensor]) -> ModelConfig:
    config = parse_config(text.encode(), file="config.pbtxt")
    config.name = "m"
    complete_tensors(config, inputs, outputs)
    return config


def test_a_model_with_free_first_dimensions_batches() -> None:
    """Triton, model configuration: automatically generated."""
    config = filled("", [X, IDS], [Y])
    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    assert [(each.name, list(each.dims)) for each in config.input] == [("x", [3, -1]), ("ids", [1])]
    assert config.input[1].HasField("reshape")
    assert list(config.input[1].reshape.shape) == []
    assert not config.input[0].HasField("reshape")
    assert (config.output[0].name, list(config.output[0].dims)) == ("y", [2])
    assert config.output[0].data_type == 13


def test_a_model_with_a_fixed_first_dimension_does_not() -> None:
    config = filled("", [FIXED], [Y])
    assert (config.max_batch_size, list(config.input[0].dims), list(config.output[0].dims)) == (0, [1, 3], [-1, 2])
    assert not config.HasField("dynamic_batching")


def test_a_configuration_that_names_its_tensors_keeps_its_batching() -> None:
    text = 'input { name: "x" data_type: TYPE_FP32 dims: [1, 3] } output { name: "y" data_type: 13 dims: [-1, 2] }'
    config = filled(text, [FIXED], [Y])
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")


def test_optional_inputs_are_offered_only_by_name() -> None:
    weight = DeclaredTensor("w", DataType.FP32, "float", (5,), is_optional=True)
    config = filled("", [X, weight], [Y])
    assert [each.name for each in config.input] == ["x"]
    assert config.max_batch_size == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_batch_size: 8", r"max_batch_size: is 8, but 'x' has the shape \[1, 3\] in the model"),
        ('input { name: "X" data_type: TYPE_FP32 dims: [1, 3] }', r"the model has no input 'X'; did you mean 'x'"),
        ('input { name: "x" data_type: TYPE_INT32 dims: [1, 3] }', "'x' is TYPE_INT32 here and TYPE_FP32 in the model"),
        ('input { name: "x" data_type: TYPE_FP32 dims: [1, 4] }', r"shape \[1, 4\] here and \[1, 3\] in the model"),
        ('input { name: "x" data_type: TYPE_FP32 dims: [3] }', r"'x' has the shape \[3\] here and \[1, 3\] in"),
        ('input { name: "x" data_type: TYPE_FP32 dims: [-1, 3] }', r"'x' has the shape \[-1, 3\] here"),
        ('output { name: "z" data_type: TYPE_FP32 dims: [1] }', r"output\[0\]\.name: the model has no output 'z'"),
        ('output { name: "y" data_type: TYPE_FP32 dims: [-1, 2] }', "'y' is TYPE_FP32 here and TYPE_STRING in"),
    ],
)  # fmt: skip
def test_contradictions_tell_both_sides(text: str, expected: str) -> None:
    """BUG-060."""
    with pytest.raises(InvalidRequest, match=expected):
        filled(text, [FIXED], [Y])


def test_a_missing_input_is_named() -> None:
    with pytest.raises(InvalidRequest, match="the model also has the input 'ids'"):
        filled('max_batch_size: 2 input { name: "x" data_type: TYPE_FP32 dims: [3, -1] }', [X, IDS], [Y])


def test_a_reshape_leads_to_the_models_shape() -> None:
    text = 'input { name: "x" data_type: TYPE_FP32 dims: [3] reshape { shape: [1, 3] } }'
    assert list(filled(text, [FIXED], [Y]).input[0].dims) == [3]


def test_what_no_request_can_carry_is_refused() -> None:
    sequence = DeclaredTensor("z", None, "seq(map(int64,tensor(float)))", ())
    with pytest.raises(Unsupported, match=r"'z' of type seq\(map"):
        filled("", [X], [Y, sequence])
    text = 'max_batch_size: 2 output { name: "y" data_type: TYPE_STRING dims: [2] }'
    assert [each.name for each in filled(text, [X], [Y, sequence]).output] == ["y"]
