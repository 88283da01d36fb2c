"""BUG-060: what Triton's own corpus of bad configurations is about, in models made here."""

from pathlib import Path

import pytest

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.modelserver.model_config import complete, parse_config, positioned, validate

IN = 'input { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }'
OUT = 'output { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }'
WARM = "model_warmup { name: 'w' batch_size: 1 inputs { key: 'IN' value { %s } } }"


def check(text: str, directory: Path, gpus: tuple[int, ...] | None = ()) -> None:
    config = complete(parse_config(f'backend: "python" {text}', file="f"), name="m", directory=directory, gpus=gpus)
    validate(config, name="m", directory=directory, gpus=gpus)


GOOD = [
    "",
    f"{IN} {OUT}",
    f"{IN} output {{ name: 'IN' data_type: TYPE_STRING dims: -1 }}",
    "name: 'm'",
    f"max_batch_size: 8 {IN} {OUT} dynamic_batching {{ }}",
    f"{IN} {OUT} dynamic_batching {{ max_queue_delay_microseconds: 9 }}",
    "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 1, 8 ] priority_levels: 2 default_priority_level: 2 "
    "priority_queue_policy { key: 2 value { timeout_action: DELAY default_timeout_microseconds: 4 } } }",
    "max_batch_size: 8 dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1 }",
    "max_batch_size: 8 dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY } }",
    "max_batch_size: 1 input { name: 'a' data_type: TYPE_FP32 dims: 1 reshape { shape: [] } }",
    "input { name: 'a' data_type: TYPE_FP32 dims: [ 2, 4, -1, 6 ] reshape { shape: [ 8, -1, 1, 6 ] } }",
    "input { name: 'a' data_type: TYPE_FP32 dims: [ -1 ] reshape { shape: [ 1, -1 ] } optional: true }",
    "input { name: 'a' data_type: TYPE_FP32 dims: [ 3, 2, 2 ] format: FORMAT_NCHW allow_ragged_batch: true }",
    "instance_group { count: 3 kind: KIND_CPU } instance_group { kind: KIND_MODEL }",
    "instance_group { count: -1 }",
    "instance_group { rate_limiter { resources { name: 'R' count: 1 } } host_policy: 'p' }",
    "version_policy { }",
    "response_cache { enable: true }",
    "model_transaction_policy { decoupled: true }",
    "default_model_filename: 'sub/main.py'",
    "parameters { key: 'k' value { string_value: 'v' } } metric_tags { key: 'a' value: 'b' }",
    "optimization { graph { level: 1 } execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }",
    f"{IN} {WARM % 'data_type: TYPE_FP32 dims: 4 random_data: true'}",
    f"{IN} model_warmup {{ name: 'skipped' batch_size: 0 }}",
    f"max_batch_size: 2 {IN} input {{ name: 'o' data_type: TYPE_FP32 dims: 1 optional: true }} model_warmup {{ "
    "batch_size: 2 count: 3 inputs { key: 'IN' value { data_type: TYPE_FP32 dims: 4 input_data_file: 'data' } } }",
    "output { name: 'a' data_type: TYPE_FP32 dims: 2 label_filename: 'labels.txt' }",
]


@pytest.mark.parametrize("text", GOOD)
def test_bug_060_good_configurations_pass(text: str, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").touch()
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup/data").touch()
    check(text, tmp_path)


BAD = [
    ("name: 'other'", "name", "'other' is not the directory's name"),
    ("max_batch_size: -1", "max_batch_size", "-1 is negative"),
    ("input { data_type: TYPE_FP32 dims: 1 }", "input[0].name", "not set"),
    (f"{OUT} {OUT}", "output[1].name", "another output is named 'OUT'"),
    ("input { name: 'a' dims: 1 }", "input[0].data_type", "'a': not set; choose one of TYPE_BOOL"),
    ("input { name: 'a' dims: 1 data_type: 99 }", "input[0].data_type", "no type has the number 99"),
    ("output { name: 'a' data_type: TYPE_FP32 }", "output[0].dims", "'a': not set"),
    (f"{IN} input {{ name: 'a' data_type: TYPE_FP32 dims: [ 1, 0 ] }}", "input[1].dims[1]", "0 is no size"),
    ("output { name: 'a' data_type: TYPE_FP32 dims: [ -2 ] }", "output[0].dims[0]", "-2 is no size"),
    ("input { name: 'a' data_type: TYPE_FP32 dims: 1 reshape { shape: [] } }", "input[0].reshape.shape", "empty shape"),
    (
        "input { name: 'a' data_type: TYPE_FP32 dims: 4 reshape { shape: [ 0 ] } }",
        "input[0].reshape.shape[0]",
        "0 is no size",
    ),
    (
        "input { name: 'a' data_type: TYPE_FP32 dims: 4 reshape { shape: [ 2, 3 ] } }",
        "input[0].reshape.shape",
        "[2, 3] has not as many elements as dims [4]",
    ),
    (
        "max_batch_size: 1 input { name: 'a' data_type: TYPE_FP32 dims: 4 reshape { shape: [] } }",
        "input[0].reshape.shape",
        "[] has not as many elements as dims [4]",
    ),
    (
        "input { name: 'a' data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ 2, -1, 2 ] } }",
        "input[0].reshape.shape",
        "between free sizes",
    ),
    (
        "input { name: 'a' data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: [ -1 ] } }",
        "input[0].reshape.shape",
        "2 sizes of dims are free (-1), but 1 of the shape",
    ),
    ("input { name: 'a' data_type: TYPE_FP32 dims: 1 format: FORMAT_NHWC }", "input[0].format", "need 3 dims"),
    ("input { name: 'a' data_type: TYPE_INT32 dims: 1 is_shape_tensor: true }", "input[0].is_shape_tensor", "TensorRT"),
    (
        "output { name: 'a' data_type: TYPE_FP32 dims: 1 is_non_linear_format_io: true }",
        "output[0].is_non_linear_format_io",
        "TensorRT",
    ),
    (
        "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 4, 8 ] }",
        "dynamic_batching.preferred_batch_size[1]",
        "8 is larger than max_batch_size (4)",
    ),
    ("dynamic_batching { preferred_batch_size: 1 }", "dynamic_batching.preferred_batch_size[0]", "max_batch_size (0)"),
    (
        "max_batch_size: 4 dynamic_batching { preferred_batch_size: 0 }",
        "dynamic_batching.preferred_batch_size[0]",
        "0 is no batch size",
    ),
    ("dynamic_batching { priority_levels: 2 }", "dynamic_batching.default_priority_level", "not within 1 to 2"),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
        "dynamic_batching.default_priority_level",
        "3 is not within 1 to 2",
    ),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value { } } }",
        "dynamic_batching.priority_queue_policy",
        "level 0 is not within 1 to 2",
    ),
    (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 preserve_ordering: true }",
        "dynamic_batching.preserve_ordering",
        "by priority",
    ),
    (
        "dynamic_batching { preserve_ordering: true default_queue_policy "
        "{ timeout_action: DELAY default_timeout_microseconds: 1 } }",
        "dynamic_batching.default_queue_policy.timeout_action",
        "DELAY lets others pass",
    ),
    ("dynamic_batching { default_queue_policy { timeout_action: 7 } }",
     "dynamic_batching.default_queue_policy.timeout_action", "choose REJECT or DELAY"),
    ("instance_group { kind: KIND_CPU gpus: 0 }", "instance_group[0].gpus", "KIND_CPU has no GPUs"),
    ("instance_group { kind: KIND_MODEL gpus: 0 }", "instance_group[0].gpus", "KIND_MODEL has no GPUs"),
    ("instance_group { kind: KIND_GPU }", "instance_group[0].kind", "no GPU here that backend 'python' can use"),
    ("instance_group { kind: 9 }", "instance_group[0].kind", "choose KIND_AUTO"),
    ("instance_group { count: 99999 }", "instance_group[0].count", "99999 are too many"),
    ("instance_group { profile: '0' }", "instance_group[0].profile", "TensorRT"),
    (
        "response_cache { enable: true } model_transaction_policy { decoupled: true }",
        "response_cache.enable",
        "decoupled",
    ),
    ("default_model_filename: '../x.py'", "default_model_filename", "leads out of"),
    ("default_model_filename: '/etc/passwd'", "default_model_filename", "leads out of"),
    ("default_model_filename: 'a/../../x.py'", "default_model_filename", "leads out of"),
    ("cc_model_filenames { key: '8.0' value: '../x' }", "cc_model_filenames[0]", "leads out of"),
    (
        "output { name: 'a' data_type: TYPE_FP32 dims: 2 label_filename: '../labels.txt' }",
        "output[0].label_filename",
        "leads out of",
    ),
    (
        "output { name: 'a' data_type: TYPE_FP32 dims: 2 label_filename: 'none.txt' }",
        "output[0].label_filename",
        "no file 'none.txt' beside config.pbtxt",
    ),
    (f"{IN} model_warmup {{ batch_size: 2 }}", "model_warmup[0].batch_size", "2 is larger than the model's 1"),
    (f"{IN} model_warmup {{ batch_size: 1 }}", "model_warmup[0].inputs", "lacks IN"),
    (f"{IN} model_warmup {{ count: 1000000 }}", "model_warmup[0].count", "too many"),
    (WARM % "", "model_warmup[0].inputs", "the model has no input 'IN'; it has: none"),
    (f"{IN} {WARM % 'data_type: TYPE_FP16 dims: 4 zero_data: true'}", "model_warmup[0].inputs", "(TYPE_FP32)"),
    (f"{IN} {WARM % 'data_type: TYPE_FP32 dims: 5 zero_data: true'}", "model_warmup[0].inputs", "do not fit"),
    (f"{IN} {WARM % 'data_type: TYPE_FP32 dims: -1 zero_data: true'}", "model_warmup[0].inputs", "shape is fixed"),
    (f"{IN} {WARM % 'data_type: TYPE_FP32 dims: 4'}", "model_warmup[0].inputs", "no data; set zero_data"),
    (f"{IN} {WARM % 'data_type: TYPE_FP32 dims: 4 input_data_file: 0x'}".replace("0x", "'none'"),
     "model_warmup[0].inputs", "no file 'none' in warmup/"),
    (f"{IN} {WARM % 'data_type: TYPE_FP32 dims: 4 input_data_file: 0x'}".replace("0x", "'../secret'"),
     "model_warmup[0].inputs", "no file '../secret' in warmup/"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "field", "reason"), BAD)
def test_bug_060_bad_configurations_name_model_and_field(text: str, field: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    with pytest.raises(InvalidRequest) as refused:
        check(text, tmp_path)
    assert refused.value.message.startswith(f"model 'm': {field}: ")
    assert (refused.value.param, reason in refused.value.message) == (field, True), refused.value.message
    assert ":1:" in positioned(refused.value, f'backend: "python" {text}', file="f").message


NOT_OFFERED = [
    ("sequence_batching { }", "sequence_batching"),
    ("runtime: 'libtriton_mine.so'", "runtime"),
    (
        f"{IN} batch_input {{ kind: BATCH_ELEMENT_COUNT target_name: 'N' data_type: TYPE_INT32 source_input: 'IN' }}",
        "batch_input",
    ),
    (f"{OUT} batch_output {{ target_name: 'OUT' }}", "batch_output"),
    ("model_operations { op_library_filename: 'x.so' }", "model_operations.op_library_filename"),
    ("model_repository_agents { agents { name: 'checksum' } }", "model_repository_agents.agents"),
    ("model_metrics { metric_control { } }", "model_metrics.metric_control"),
    ("instance_group { passive: true }", "instance_group[0].passive"),
    ("instance_group { secondary_devices { device_id: 1 } }", "instance_group[0].secondary_devices"),
]


@pytest.mark.parametrize(("text", "field"), NOT_OFFERED)
def test_no_field_is_silently_ignored(text: str, field: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as refused:
        check(text, tmp_path)
    assert refused.value.message.startswith(f"model 'm': {field}: ")
    assert refused.value.param == field


def test_gpus_of_this_machine(tmp_path: Path) -> None:
    text = "instance_group { kind: KIND_GPU gpus: [ 0, 5 ] }"
    check(text, tmp_path, gpus=(0, 5))
    check(text, tmp_path, gpus=None)
    with pytest.raises(InvalidRequest, match=r"instance_group\[0\]\.gpus\[1\]: there is no GPU 5; there are: 0, 1"):
        check(text, tmp_path, gpus=(0, 1))


def test_labels_behind_a_link_out_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/labels.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidRequest, match="label_filename"):
        check("output { name: 'a' data_type: TYPE_FP32 dims: 2 label_filename: 'labels.txt' }", tmp_path / "m")
