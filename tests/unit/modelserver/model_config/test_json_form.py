import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInstanceGroup

from tribar.core.errors import InvalidRequest
from tribar.modelserver.model_config import config_from_json, config_to_json, parse_config

REFUSED = [
    ("", "config: no JSON at line 1, column 1"),
    ("{\n  bad", "config: no JSON at line 2, column 3"),
    ('{"nme": "a"}', "config: unknown field 'nme' in ModelConfig; did you mean 'name'?"),
    ('{"input": [{"foo": 1}]}', "config, at input[0]: unknown field 'foo' in ModelInput; known here: name, data_type"),
    ('{"input": [{"data_type": "FP32"}]}', "config, at input[0].data_type: 'FP32' is no value of"),
    ('{"input": [{"data_type": "BYTES"}]}', "did you mean 'TYPE_STRING'?"),
    ('{"input": [{"dims": [1.5]}]}', "config, at input[0].dims[0]: expected an integer but found 1.5"),
    ('{"input": [{"dims": 3}]}', "'dims' takes a list"),
    ('{"input": {"name": "x"}}', "config, at input: 'input' takes a list"),
    ('{"input": [null]}', "config, at input[0]: null is no element of a list"),
    ('{"max_batch_size": "x"}', "config, at max_batch_size: expected an integer but found 'x'"),
    ('{"max_batch_size": true}', "config, at max_batch_size: expected an integer but found True"),
    ('{"max_batch_size": NaN}', "config, at max_batch_size: expected an integer but found nan"),
    ('{"max_batch_size": 1e20}', "config, at max_batch_size: 100000000000000000000 does not fit"),
    ('{"name": 3}', "config, at name: expected a string"),
    ('{"dynamic_batching": {}, "sequence_batching": {}}', "config: more than one scheduler is set; keep one of"),
    ('{"name": "a", "name": "b"}', "config: 'name' is set twice"),
    ('{"parameters": {"a": "b"}}', "config, at parameters[a]: unknown field 'b' in ModelParameter"),
    ("[]", "config: expected an object"),
    ("null", "config: expected an object"),
    ('{"a":' * 100_000, "config: no JSON that can be read"),
    (" " * (2 << 20), "config: 2097152 bytes are too many"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=lambda text: text[:40])
def test_what_is_wrong_is_said_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        config_from_json(text)
    assert reason in refused.value.message
    assert (refused.value.param or "").startswith("config")


def test_names_numbers_and_nulls_as_triton_takes_them() -> None:
    config = config_from_json(
        b'{"maxBatchSize": "3", "platform": null, "optimization": null, "parameters": {"k": {"stringValue": "v"}},'
        b'"input": [{"name": "a", "dims": ["2", -1, 3.0], "dataType": "type_fp32"}], "instance_group": [{"kind": 2}]}'
    )
    assert config == parse_config(
        'max_batch_size: 3 parameters { key: "k" value { string_value: "v" } } instance_group { kind: KIND_CPU }'
        'input { name: "a" dims: [2, -1, 3] data_type: TYPE_FP32 }',
        file="f",
    )


NAMES = st.text(max_size=5)
SIZES = st.integers(-(2**63), 2**63 - 1)
TENSORS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "data_type": st.sampled_from(DataType.values()), "dims": st.lists(SIZES, max_size=3)},
        optional={"reshape": st.fixed_dictionaries({"shape": st.lists(SIZES, max_size=2)})},
    ),
    max_size=3,
)
SCHEDULERS: list[st.SearchStrategy[dict[str, Any]]] = [
    st.fixed_dictionaries(
        {"dynamic_batching": st.fixed_dictionaries({"preferred_batch_size": st.lists(st.integers(0, 9), max_size=2)})}
    ),
    st.fixed_dictionaries(
        {"sequence_batching": st.fixed_dictionaries({"direct": st.fixed_dictionaries(
            {"minimum_slot_utilization": st.floats(width=32, allow_nan=False, allow_infinity=False)})})}
    ),
    st.just({}),
]  # fmt: skip
GROUPS = st.fixed_dictionaries(
    {"kind": st.sampled_from(ModelInstanceGroup.Kind.values()), "gpus": st.lists(st.integers(0, 9), max_size=2)}
)
CONFIGS = st.builds(
    lambda plain, scheduler: ModelConfig(**plain, **scheduler),
    st.fixed_dictionaries(
        {
            "name": NAMES, "max_batch_size": st.integers(-(2**31), 2**31 - 1), "input": TENSORS, "output": TENSORS,
            "metric_tags": st.dictionaries(NAMES, NAMES, max_size=2),
            "instance_group": st.lists(GROUPS, max_size=2),
        }
    ),
    st.one_of(SCHEDULERS),
)  # fmt: skip


@settings(deadline=None)
@given(CONFIGS)
def test_text_to_config_to_json_to_config(config: ModelConfig) -> None:
    assert parse_config(str(config), file="f") == config
    shown = json.dumps(config_to_json(config))
    assert config_from_json(shown) == config
    assert json_format.Parse(shown, ModelConfig()) == config


def test_every_plain_field_is_shown_and_no_message_that_is_not_set() -> None:
    shown = config_to_json(parse_config('name: "a" version_policy { all {} }', file="f"))
    assert shown["version_policy"] == {"all": {}}
    assert (shown["backend"], shown["max_batch_size"], shown["input"], shown["parameters"]) == ("", 0, [], {})
    assert not shown.keys() & {"optimization", "dynamic_batching", "response_cache"}
