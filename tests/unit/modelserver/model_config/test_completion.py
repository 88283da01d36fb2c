from pathlib import Path

import pytest

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.modelserver.model_config import complete, complete_batching, parse_config


def a_model(directory: Path, *files: str) -> Path:
    for file in files:
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).touch()
    return directory


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ("", ["1/model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ("", ["1/model.py"], ("python", "", "model.py")),
        ("", ["1/model.pt"], ("pytorch", "pytorch_libtorch", "model.pt")),
        ("", ["1/model.pt2"], ("pytorch", "pytorch_libtorch", "model.pt2")),
        ("", ["1/readme", "3/model.py"], ("python", "", "model.py")),
        ("", ["1/model.onnx/weights"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('platform: "onnxruntime_onnx"', [], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('backend: "onnxruntime"', ["1/other.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('backend: "torch"', ["1/model.pt2"], ("pytorch", "pytorch_libtorch", "model.pt2")),
        ('platform: "torch_aoti"', [], ("pytorch", "torch_aoti", "model.pt")),
        ('backend: "python" default_model_filename: "main.py"', [], ("python", "", "main.py")),
        ('default_model_filename: "model.onnx"', ["1/model.py"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('backend: "python" platform: "mine"', [], ("python", "mine", "model.py")),
    ],
)
def test_backend_platform_and_file_from_each_other(
    text: str, files: list[str], expected: tuple[str, str, str], tmp_path: Path
) -> None:
    config = complete(parse_config(text, file="f"), name="m", directory=a_model(tmp_path, *files))
    assert (config.backend, config.platform, config.default_model_filename) == expected
    assert (config.name, config.version_policy.latest.num_versions) == ("m", 1)


@pytest.mark.parametrize(
    ("text", "files", "reason"),
    [
        ('platform: "tensorrt_plan"', [], "platform: 'tensorrt_plan' is not served here; export the model to ONNX"),
        ('backend: "tensorrt"', [], "backend: 'tensorrt' is not served here"),
        ("", ["1/model.plan"], "'tensorrt' is not served here; export the model to ONNX"),
        ('platform: "tensorflow_savedmodel"', [], "tf2onnx"),
        ("", ["1/model.graphdef"], "tf2onnx"),
        ('backend: "tensorflow"', [], "tf2onnx"),
        ('backend: "dali"', [], "preprocessing"),
        ('backend: "openvino"', [], "ONNX"),
        ("", ["1/model.xml"], "ONNX"),
        ('backend: "fil"', [], "onnxmltools"),
        ('backend: "vllm"', [], "tribar serve MODEL"),
        ('backend: "tensorrt_llm"', [], "tribar serve MODEL"),
        ('platform: "ensemble" ensemble_scheduling { step { model_name: "a" } }', [], "business logic scripting"),
        ("ensemble_scheduling { }", [], "business logic scripting"),
        ('backend: "identity"', [], 'backend: "python"'),
    ],
)
def test_what_is_not_here_is_refused_with_its_substitute(
    text: str, files: list[str], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(Unsupported) as refused:
        complete(parse_config(text, file="f"), name="m", directory=a_model(tmp_path, *files))
    assert reason in refused.value.message
    assert refused.value.message.startswith("model 'm': ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "backend: not set, and no version directory has a known file"),
        ('platform: "onnx_runtime"', "platform: unknown platform 'onnx_runtime'; did you mean 'onnxruntime_onnx'?"),
        ('backend: "onnxruntim"', "backend: unknown backend 'onnxruntim'; did you mean 'onnxruntime'?"),
        ('backend: "onnxruntime" platform: "pytorch_libtorch"', "platform: 'pytorch_libtorch' does not belong to"),
        ('default_model_filename: "net.bin"', "backend: not set"),
    ],
)
def test_no_backend_is_meant(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        complete(parse_config(text, file="f"), name="m", directory=a_model(tmp_path, "1/readme"))
    assert reason in refused.value.message


@pytest.mark.parametrize(
    ("groups", "gpus", "expected"),
    [
        ("", (), [("m", "CPU", 2, [])]),
        ("", (0, 1), [("m", "GPU", 1, [0, 1])]),
        ("", None, [("m", "AUTO", 1, [])]),
        ("instance_group { kind: KIND_CPU }", (0,), [("m_0", "CPU", 2, [])]),
        ("instance_group { count: 3 } instance_group { }", (0,), [("m_0", "GPU", 3, [0]), ("m_1", "GPU", 1, [0])]),
        ("instance_group { gpus: 1 }", (0, 1), [("m_0", "GPU", 1, [1])]),
        ("instance_group { gpus: 7 }", (0, 1), [("m_0", "CPU", 2, [7])]),
        ('instance_group { kind: KIND_MODEL name: "x" }', (0,), [("x", "MODEL", 1, [])]),
    ],
)
def test_instance_groups(
    groups: str, gpus: tuple[int, ...] | None, expected: list[tuple[str, str, int, list[int]]], tmp_path: Path
) -> None:
    config = complete(
        parse_config(f'backend: "onnxruntime" {groups}', file="f"), name="m", directory=tmp_path, gpus=gpus
    )
    kinds = {0: "AUTO", 1: "GPU", 2: "CPU", 3: "MODEL"}
    found = [(group.name, kinds[group.kind], group.count, list(group.gpus)) for group in config.instance_group]
    assert found == expected
    assert complete(config, name="m", directory=tmp_path, gpus=gpus) == config


def test_python_models_have_one_instance(tmp_path: Path) -> None:
    config = complete(parse_config('backend: "python"', file="f"), name="m", directory=tmp_path)
    assert [group.count for group in config.instance_group] == [1]


@pytest.mark.parametrize(
    ("text", "can_batch", "expected"),
    [
        ("", True, (4, True, [4])),
        ("", False, (0, False, [])),
        ("max_batch_size: 8", True, (8, True, [8])),
        ("max_batch_size: 1", True, (1, False, [])),
        ("max_batch_size: 8 dynamic_batching { preferred_batch_size: 2 }", True, (8, True, [2])),
        ("max_batch_size: 8 dynamic_batching { }", False, (8, True, [8])),
        ("dynamic_batching { }", True, (4, True, [4])),
        ("max_batch_size: 8 sequence_batching { }", True, (8, False, [])),
        ("max_batch_size: 8", False, (8, False, [])),
    ],
)
def test_dynamic_batching_is_turned_on_where_triton_does(
    text: str, can_batch: bool, expected: tuple[int, bool, list[int]], tmp_path: Path
) -> None:
    config = complete(parse_config(f'backend: "onnxruntime" {text}', file="f"), name="m", directory=tmp_path)
    complete_batching(config, can_batch=can_batch)
    config = complete(config, name="m", directory=tmp_path)
    preferred = list(config.dynamic_batching.preferred_batch_size)
    assert (config.max_batch_size, config.HasField("dynamic_batching"), preferred) == expected


def test_the_given_config_is_left_as_it_is(tmp_path: Path) -> None:
    config = parse_config('backend: "python" dynamic_batching { } max_batch_size: 2', file="f")
    before = config.SerializeToString()
    complete(config, name="m", directory=tmp_path)
    assert config.SerializeToString() == before
