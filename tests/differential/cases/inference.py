"""Inference requests beside their datatypes: shapes, names, counts, outputs, classes, parameters, versions, faults."""

from typing import Any

from tests.differential.case import Grpc, Http, View, case
from tests.differential.cases.requests import grpc_infer, infer, infer_binary, post, raw, tensor, wanted
from tests.differential.tensors import pack

FP = tensor("FP32", [1, 2], [1, 2])
ROW = list(range(16))
SIMPLE = (tensor("INT32", [1, 16], ROW, "INPUT0"), tensor("INT32", [1, 16], [1] * 16, "INPUT1"))
TEXTS = [str(number) for number in ROW]
SCORES = (
    tensor("FP32", [2, 4], [1, 4, 3, 2, 0.5, -1, 0.25, 9]),
    tensor("FP32", [2, 2, 2], [1, 4, 3, 2, 4, 3, 2, 1], "INPUT1"),
)
ECHO = tensor("INT32", [1], [1])
TICK = tensor("INT32", [1, 1], [0])

PARAMETERS: dict[str, Any] = {
    "kinds": {"a": 1, "b": "x", "c": True, "d": 1.5, "e": -(2**60)},
    "null": {"a": None},
    "list": {"a": [1]},
    "object": {"a": {"b": 1}},
    "timeout": {"timeout": 5000000},
    "timeout_negative": {"timeout": -1},
    "timeout_word": {"timeout": "x"},
    "priority": {"priority": 1},
    "priority_word": {"priority": "x"},
    "priority_negative": {"priority": -1},
    "sequence": {"sequence_id": 7, "sequence_start": True, "sequence_end": True},
    "sequence_text": {"sequence_id": "abc", "sequence_start": True},
    "sequence_start_word": {"sequence_id": 7, "sequence_start": "yes"},
    "reserved": {"triton_enable_empty_final_response": True},
    "reserved_other": {"triton_nope": 1},
    "unicode": {"ä": "ü"},
}
FAULTS = (
    "ok",
    "raise",
    "raise_model_error",
    "text",
    "too_few",
    "error",
    "both",
    "wrong_shape",
    "wrong_batch",
    "wrong_rank",
    "wrong_type",
    "wrong_name",
    "missing_output",
    "no_outputs",
    "not_utf8",
    "unknown",
    "internal",
    "not_found",
    "invalid_arg",
    "unavailable",
    "unsupported",
    "already_exists",
    "cancelled",
)


def fault(name: str) -> tuple[Http, Grpc]:
    given = tensor("BYTES", [1, 1], [name])
    return infer("faults", given), grpc_infer("faults", given)


CASES = [
    *(case(f"parameter_{name}", infer("echo", ECHO, parameters=given)) for name, given in PARAMETERS.items()),
    *(case(f"fault_{name}", *fault(name)) for name in FAULTS),
    case("simple", infer("simple", *SIMPLE), grpc_infer("simple", *SIMPLE)),
    case("simple_swapped", infer("simple", *reversed(SIMPLE))),
    case("simple_one_output", infer("simple", *SIMPLE, outputs=[wanted("OUTPUT1")])),
    case("simple_outputs_swapped", infer("simple", *SIMPLE, outputs=[wanted("OUTPUT1"), wanted("OUTPUT0")])),
    case(
        "simple_mixed_forms", infer("simple", *SIMPLE, outputs=[wanted("OUTPUT0", binary_data=True), wanted("OUTPUT1")])
    ),
    case("simple_one_input", infer("simple", SIMPLE[0])),
    case("simple_batches_differ", infer("simple", SIMPLE[0], tensor("INT32", [2, 16], ROW + ROW, "INPUT1"))),
    case(
        "simple_string",
        infer("simple_string", *(tensor("BYTES", [1, 16], TEXTS, name) for name in ("INPUT0", "INPUT1"))),
    ),
    case("simple_identity", infer("simple_identity", tensor("BYTES", [1, 3], ["a", "", "c"]))),
    case(
        "two_inputs",
        infer_binary("two_fp32", raw("FP32", [1, 2], [1, 2]), raw("INT64", [1, 2, 1], [3, 4], "INPUT1")),
    ),
    case(
        "two_inputs_kinds_swapped",
        infer("two_fp32", tensor("INT64", [1, 1], [1]), tensor("FP32", [1, 2, 1], [1, 2], "INPUT1")),
    ),
    case(
        "reshape", infer("reshape", tensor("FP32", [2, 1], [1, 2]), tensor("FP32", [2, 2, 2], list(range(8)), "INPUT1"))
    ),
    case(
        "reshape_inner_shape",
        infer("reshape", tensor("FP32", [2], [1, 2]), tensor("FP32", [2, 4], list(range(8)), "INPUT1")),
    ),
    case("optional_given", infer("optional", FP, tensor("FP32", [1, 2], [5, 6], "INPUT1"))),
    case("optional_missing", infer("optional", FP)),
    case("optional_only", infer("optional", tensor("FP32", [1, 2], [5, 6], "INPUT1"))),
    case("optional_rows_differ", infer("optional", FP, tensor("FP32", [2, 2], [5, 6, 7, 8], "INPUT1"))),
    case("sleep", infer("sleep", TICK, outputs=[wanted(), wanted("SIZE")])),
    *(
        case(f"classes_{name}", infer("classes", *SCORES, outputs=outputs))
        for name, outputs in {
            "labelled": [wanted(classification=2)],
            "unlabelled": [wanted("OUTPUT1", classification=3)],
            "all": [wanted(classification=4)],
            "too_many": [wanted(classification=99)],
            "zero": [wanted(classification=0)],
            "negative": [wanted(classification=-1)],
            "word": [wanted(classification="x")],
            "binary": [wanted(classification=1, binary_data=True)],
            "beside_plain": [wanted(classification=1), wanted("OUTPUT1")],
            "of_both": [wanted(classification=1), wanted("OUTPUT1", classification=1)],
        }.items()
    ),
    case(
        "classes_of_ints",
        infer("identity_int32", tensor("INT32", [1, 3], [5, 9, 7]), outputs=[wanted(classification=2)]),
    ),
    case(
        "classes_of_ties",
        infer("identity_int32", tensor("INT32", [1, 3], [5, 5, 5]), outputs=[wanted(classification=3)]),
    ),
    case(
        "grpc_classes",
        grpc_infer(
            "classes", *SCORES, outputs=[{"name": "OUTPUT0", "parameters": {"classification": {"int64_param": "2"}}}]
        ),
    ),
    case(
        "grpc_classes_zero",
        grpc_infer(
            "classes", *SCORES, outputs=[{"name": "OUTPUT0", "parameters": {"classification": {"int64_param": "0"}}}]
        ),
    ),
    *(
        case(
            f"version_{version or 'empty'}_of_{model}",
            post(f"/v2/models/{model}/versions/{version}/infer", {"inputs": [ECHO]}),
        )
        for model, version in [
            ("versions_default", "10"),
            ("versions_default", "1"),
            ("versions_latest", "2"),
            ("versions_latest", "1"),
            ("versions_all", "1"),
            ("versions_all", "01"),
            ("versions_all", "-1"),
            ("versions_all", "x"),
            ("versions_all", "5"),
            ("versions_all", ""),
            ("versions_specific", "10"),
            ("versions_specific", "2"),
            ("versions_odd", "0"),
            ("versions_odd", "2"),
        ]
    ),
    *(
        case(f"newest_of_{model}", infer(model, ECHO), grpc_infer(model, ECHO))
        for model in ("versions_default", "versions_latest", "versions_all", "versions_specific", "versions_odd")
    ),
    *(
        case(f"unknown_model_{name}", post(f"/v2/models/{path}/infer", {"inputs": [FP]}))
        for name, path in {
            "plain": "nonesuch",
            "space": "a%20b",
            "dots": "..",
            "empty": "",
            "unicode": "%C3%BC",
            "unloaded": "broken_initialize",
        }.items()
    ),
    case("grpc_unknown_model", grpc_infer("nonesuch", FP)),
    case("grpc_nameless_model", grpc_infer("", FP)),
    case("grpc_unknown_version", grpc_infer("identity_fp32", FP, model_version="7")),
    case("grpc_version_word", grpc_infer("identity_fp32", FP, model_version="x")),
    case("grpc_older_version", grpc_infer("versions_all", ECHO, model_version="2")),
    case("grpc_id", grpc_infer("identity_fp32", FP, id="abc")),
    case("grpc_no_inputs", grpc_infer("identity_fp32")),
    case("grpc_no_contents", grpc_infer("identity_fp32", {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1]})),
    case("grpc_both_contents", grpc_infer("identity_fp32", FP, contents=[pack("FP32", [1, 2])])),
    case(
        "grpc_raw_too_long",
        grpc_infer(
            "identity_fp32", {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1]}, contents=[pack("FP32", [1, 2])]
        ),
    ),
    case(
        "grpc_raw_too_many",
        grpc_infer(
            "identity_fp32", {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1]}, contents=[pack("FP32", [1])] * 2
        ),
    ),
    case("grpc_contents_too_few", grpc_infer("identity_fp32", tensor("FP32", [1, 3], [1, 2]))),
    case(
        "grpc_contents_of_other_kind",
        grpc_infer(
            "identity_fp32", {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "contents": {"int_contents": [1]}}
        ),
    ),
    case(
        "grpc_fp16_contents",
        grpc_infer(
            "identity_fp16", {"name": "INPUT0", "datatype": "FP16", "shape": [1, 1], "contents": {"fp32_contents": [1]}}
        ),
    ),
    case("grpc_int8_out_of_range", grpc_infer("identity_int8", tensor("INT8", [1, 1], [300]))),
    case(
        "grpc_datatype_unknown",
        grpc_infer("identity_fp32", {"name": "INPUT0", "datatype": "FP99", "shape": [1, 1]}, contents=[b"0000"]),
    ),
    case("grpc_datatype_other", grpc_infer("identity_fp32", tensor("INT32", [1, 1], [1]))),
    case("grpc_shape_negative", grpc_infer("identity_fp32", tensor("FP32", [1, -1], [1]))),
    case(
        "grpc_shape_overflow",
        grpc_infer(
            "identity_fp32",
            {"name": "INPUT0", "datatype": "FP32", "shape": [2**4, 2**60 + 2]},
            contents=[pack("FP32", [1])],
        ),
    ),
    case("grpc_batch_too_large", grpc_infer("fixed_fp32", tensor("FP32", [5, 2, 3], [0] * 30))),
    case("grpc_twice", grpc_infer("identity_fp32", FP, FP)),
    case("grpc_output_unknown", grpc_infer("identity_fp32", FP, outputs=[{"name": "NOPE"}])),
    case("grpc_output_twice", grpc_infer("identity_fp32", FP, outputs=[{"name": "OUTPUT0"}] * 2)),
    case(
        "grpc_parameters",
        grpc_infer(
            "echo",
            ECHO,
            parameters={
                "a": {"int64_param": "1"},
                "b": {"string_param": "x"},
                "c": {"bool_param": True},
                "d": {"double_param": 1.5},
                "e": {"uint64_param": "3"},
            },
        ),
    ),
    case("grpc_priority", grpc_infer("echo", ECHO, parameters={"priority": {"uint64_param": "1"}})),
    case("grpc_priority_word", grpc_infer("echo", ECHO, parameters={"priority": {"string_param": "x"}})),
    case("grpc_timeout", grpc_infer("echo", ECHO, parameters={"timeout": {"int64_param": "5000000"}})),
    case(
        "grpc_sequence",
        grpc_infer(
            "echo", ECHO, parameters={"sequence_id": {"int64_param": "7"}, "sequence_start": {"bool_param": True}}
        ),
    ),
    case("grpc_reserved", grpc_infer("echo", ECHO, parameters={"triton_nope": {"int64_param": "1"}})),
    case(
        "grpc_BYTES_prefix_beyond",
        grpc_infer(
            "identity_bytes", {"name": "INPUT0", "datatype": "BYTES", "shape": [1, 1]}, contents=[b"\xff\x00\x00\x00ab"]
        ),
    ),
    case(
        "grpc_BYTES_too_many",
        grpc_infer(
            "identity_bytes",
            {"name": "INPUT0", "datatype": "BYTES", "shape": [1, 1]},
            contents=[pack("BYTES", ["a", "b"])],
        ),
    ),
    case(
        "priority_of_levels",
        *(
            infer("priority", TICK, outputs=[wanted()], parameters={"priority": level})
            for level in (0, 1, 2, 3, 4, 1000)
        ),
    ),
    case("priority_negative_of_levels", infer("priority", TICK, outputs=[wanted()], parameters={"priority": -1})),
    case("priority_without_levels", infer("batch_no_delay", TICK, outputs=[wanted()], parameters={"priority": 9})),
    case("timeout_of_policy", infer("queue_reject", TICK, outputs=[wanted()], parameters={"timeout": 10_000_000})),
    case("timeout_not_allowed", infer("queue_delay", TICK, outputs=[wanted()], parameters={"timeout": 10_000_000})),
    case(
        "statistics_of_used",
        infer("simple", *SIMPLE),
        Http("GET", "/v2/models/simple/stats", view=View.SHAPE),
        Grpc("ModelStatistics", ({"name": "simple"},), view=View.SHAPE),
    ),
    case("warmed_up", infer("warm", tensor("FP32", [1, 2], [1, 2]), tensor("BYTES", [1, 1], ["real"], "INPUT1"))),
    case("cached", *(infer("cached", tensor("INT32", [1, 1], [value])) for value in (5, 6, 5, 5))),
    case(
        "decoupled_unary",
        infer("stream", tensor("BYTES", [1], ["a"], "text_input")),
        grpc_infer("stream", tensor("BYTES", [1], ["a"], "text_input")),
    ),
]
