"""Inference requests in JSON whose shape, data, fields or syntax are odd."""

from typing import Any

from tests.differential.case import case
from tests.differential.cases.requests import infer, post, tensor, wanted

FP = tensor("FP32", [1, 2], [1, 2])
SHAPES: dict[str, tuple[str, Any, Any]] = {
    "fits": ("fixed_fp32", [1, 2, 3], [1, 2, 3, 4, 5, 6]),
    "two_rows": ("fixed_fp32", [2, 2, 3], list(range(12))),
    "batch_too_large": ("fixed_fp32", [5, 2, 3], [0] * 30),
    "batch_zero": ("fixed_fp32", [0, 2, 3], []),
    "no_batch": ("fixed_fp32", [2, 3], [0] * 6),
    "last_wrong": ("fixed_fp32", [1, 2, 4], [0] * 8),
    "rank_high": ("fixed_fp32", [1, 1, 2, 3], [0] * 6),
    "rank_low": ("fixed_fp32", [6], [0] * 6),
    "too_few_elements": ("fixed_fp32", [1, 2, 3], [0] * 5),
    "too_many_elements": ("fixed_fp32", [1, 2, 3], [0] * 7),
    "nested": ("fixed_fp32", [1, 2, 3], [[[1, 2, 3], [4, 5, 6]]]),
    "nested_otherwise": ("fixed_fp32", [1, 2, 3], [[1, 2], [3, 4], [5, 6]]),
    "negative": ("identity_fp32", [1, -1], [1]),
    "minus_one_batch": ("identity_fp32", [-1, 1], [1]),
    "empty_list": ("identity_fp32", [], [1]),
    "word": ("identity_fp32", "x", [1]),
    "word_inside": ("identity_fp32", [1, "1"], [1]),
    "number": ("identity_fp32", 1, [1]),
    "fraction": ("identity_fp32", [1, 1.5], [1]),
    "null": ("identity_fp32", None, [1]),
    "overflow": ("identity_fp32", [2**4, 2**60 + 2], [1]),
    "huge": ("identity_fp32", [1, 2**63], [1]),
    "zero_columns": ("identity_fp32", [2, 0], []),
    "plain": ("plain_fp32", [3, 2], [1, 2, 3, 4, 5, 6]),
    "plain_zero_rows": ("plain_fp32", [0, 2], []),
    "plain_wrong": ("plain_fp32", [3, 3], [0] * 9),
    "plain_rank": ("plain_fp32", [1, 3, 2], [0] * 6),
    "data_word": ("identity_fp32", [1, 1], "x"),
    "data_number": ("identity_fp32", [1, 1], 5),
    "data_null": ("identity_fp32", [1, 1], None),
    "data_object": ("identity_fp32", [1, 1], {"a": 1}),
}
BODIES: dict[str, Any] = {
    "empty_object": {},
    "list": [],
    "number": 5,
    "text": '"x"',
    "null": "null",
    "broken": "{bad",
    "truncated": '{"inputs":[{"name":"INPUT0"',
    "trailing": '{"inputs":[]} x',
    "not_utf8": b'{"inputs":[{"name":"\xff"}]}',
    "deep": '{"inputs":' + "[" * 120 + "]" * 120 + "}",
    "inputs_empty": {"inputs": []},
    "inputs_object": {"inputs": {}},
    "inputs_number": {"inputs": 5},
    "inputs_null": {"inputs": None},
    "inputs_of_numbers": {"inputs": [1]},
    "inputs_of_empty": {"inputs": [{}]},
    "no_name": {"inputs": [{"datatype": "FP32", "shape": [1, 1], "data": [1]}]},
    "name_number": {"inputs": [{"name": 5, "datatype": "FP32", "shape": [1, 1], "data": [1]}]},
    "name_empty": {"inputs": [{"name": "", "datatype": "FP32", "shape": [1, 1], "data": [1]}]},
    "no_datatype": {"inputs": [{"name": "INPUT0", "shape": [1, 1], "data": [1]}]},
    "no_shape": {"inputs": [{"name": "INPUT0", "datatype": "FP32", "data": [1]}]},
    "no_data": {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1]}]},
    "datatype_unknown": {"inputs": [tensor("FP99", [1, 1], [1])]},
    "datatype_lower": {"inputs": [tensor("fp32", [1, 1], [1])]},
    "datatype_config_name": {"inputs": [tensor("TYPE_FP32", [1, 1], [1])]},
    "datatype_number": {"inputs": [{"name": "INPUT0", "datatype": 5, "shape": [1, 1], "data": [1]}]},
    "datatype_other": {"inputs": [tensor("INT32", [1, 1], [1])]},
    "unknown_input": {"inputs": [tensor("FP32", [1, 1], [1], "NOPE")]},
    "more_inputs": {"inputs": [FP, tensor("FP32", [1, 1], [1], "INPUT1")]},
    "twice": {"inputs": [FP, FP]},
    "unknown_field": {"inputs": [FP], "nope": 1},
    "unknown_input_field": {"inputs": [FP | {"nope": 1}]},
    "duplicate_key": '{"id":"a","id":"b","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}',
    "id": {"id": "abc", "inputs": [FP]},
    "id_empty": {"id": "", "inputs": [FP]},
    "id_number": {"id": 5, "inputs": [FP]},
    "id_null": {"id": None, "inputs": [FP]},
    "id_unicode": {"id": "zwölf", "inputs": [FP]},
    "id_in_error": {"id": "abc", "inputs": [FP, FP]},
    "outputs_empty": {"inputs": [FP], "outputs": []},
    "outputs_object": {"inputs": [FP], "outputs": {}},
    "output_unknown": {"inputs": [FP], "outputs": [wanted("NOPE")]},
    "output_twice": {"inputs": [FP], "outputs": [wanted(), wanted()]},
    "output_no_name": {"inputs": [FP], "outputs": [{}]},
    "output_binary_word": {"inputs": [FP], "outputs": [wanted(binary_data="yes")]},
    "parameters_list": {"inputs": [FP], "parameters": []},
    "parameters_null": {"inputs": [FP], "parameters": None},
    "binary_size_without_header": {
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": 4}}]
    },
    "binary_for_all": {"inputs": [FP], "parameters": {"binary_data_output": True}},
    "binary_for_all_but_one": {
        "inputs": [FP],
        "parameters": {"binary_data_output": True},
        "outputs": [wanted(binary_data=False)],
    },
    "binary_for_all_word": {"inputs": [FP], "parameters": {"binary_data_output": "yes"}},
}

CASES = [
    *(
        case(f"shape_{name}", infer(model, tensor("FP32", shape, data)))
        for name, (model, shape, data) in SHAPES.items()
    ),
    *(case(f"body_{name}", post("/v2/models/identity_fp32/infer", body)) for name, body in BODIES.items()),
]
