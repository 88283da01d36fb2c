"""Every datatype, in JSON, in raw form and over gRPC; numbers at and beyond their type's ends."""

from typing import Any

from tests.differential.case import Case, case
from tests.differential.cases.requests import CONTENTS, grpc_infer, infer, infer_binary, raw, tensor, wanted
from tests.differential.tensors import pack

SAMPLES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    "INT8": [-128, 0, 127],
    "INT16": [-32768, 0, 32767],
    "INT32": [-(2**31), 0, 2**31 - 1],
    "INT64": [-(2**63), 0, 2**63 - 1],
    "UINT8": [0, 1, 255],
    "UINT16": [0, 1, 65535],
    "UINT32": [0, 1, 2**32 - 1],
    "UINT64": [0, 2**53 + 1, 2**64 - 1],
    "FP16": [-1.5, 0.0, 65504.0],
    "BF16": [-1.5, 0.0, 256.0],
    "FP32": [-1.5, 0.1, 3.0e38],
    "FP64": [-1.5, 0.1, 1.0e308],
    "BYTES": ["one", "", "zwölf"],
}
BAD_ELEMENTS: list[tuple[str, str, Any]] = [
    ("INT8", "too_large", 300),
    ("INT8", "too_small", -129),
    ("UINT8", "negative", -1),
    ("INT16", "too_large", 40000),
    ("UINT16", "too_large", 65536),
    ("INT32", "too_large", 2**31),
    ("INT32", "fraction", 1.5),
    ("INT32", "whole_float", 2.0),
    ("INT32", "text", "1"),
    ("INT32", "null", None),
    ("INT32", "true", True),
    ("UINT32", "negative", -1),
    ("INT64", "too_large", 2**63),
    ("UINT64", "too_large", 2**64),
    ("UINT64", "negative", -1),
    ("BOOL", "zero", 0),
    ("BOOL", "one", 1),
    ("BOOL", "two", 2),
    ("BOOL", "text", "x"),
    ("FP32", "integer", 3),
    ("FP32", "text", "1.0"),
    ("FP32", "text_nan", "NaN"),
    ("FP32", "null", None),
    ("FP32", "too_large", 1e39),
    ("FP32", "true", True),
    ("FP64", "integer", 2**53 + 1),
    ("BYTES", "number", 5),
    ("BYTES", "null", None),
    ("BYTES", "true", True),
    ("BYTES", "object", {"b64": "AA=="}),
]


def of_datatype(datatype: str, values: list[Any]) -> list[Case]:
    model = f"identity_{datatype.lower()}"
    shape = [1, len(values)]
    given = tensor(datatype, shape, values)
    head = {"name": "INPUT0", "datatype": datatype, "shape": shape}
    cases = [
        case(f"{datatype}_json", infer(model, given)),
        case(f"{datatype}_binary", infer_binary(model, raw(datatype, shape, values))),
        case(f"{datatype}_json_to_binary", infer(model, given, outputs=[wanted(binary_data=True)])),
        case(
            f"{datatype}_binary_to_json",
            infer_binary(model, raw(datatype, shape, values), outputs=[wanted(binary_data=False)]),
        ),
        case(f"{datatype}_grpc_raw", grpc_infer(model, head, contents=[pack(datatype, values)])),
        case(f"{datatype}_zero_size", infer_binary(model, raw(datatype, [1, 0], []))),
        case(f"{datatype}_short_raw", grpc_infer(model, head, contents=[pack(datatype, values)[:-1]])),
    ]
    if datatype in CONTENTS:
        cases.append(case(f"{datatype}_grpc_contents", grpc_infer(model, given)))
    return cases


def bad_element(datatype: str, name: str, value: Any) -> Case:
    return case(f"{datatype}_element_{name}", infer(f"identity_{datatype.lower()}", tensor(datatype, [1, 1], [value])))


NOT_FINITE = [float("nan"), float("inf"), float("-inf"), 1.0]
BYTES_ELEMENTS = [b"\x00a\x00", b"", b"x" * 1000, "ü".encode()]

CASES = [
    *(one for datatype, values in SAMPLES.items() for one in of_datatype(datatype, values)),
    *(bad_element(*bad) for bad in BAD_ELEMENTS),
    *(
        case(f"{datatype}_not_finite_{form}", infer_binary(f"identity_{datatype.lower()}", given, outputs=outputs))
        for datatype in ("FP16", "FP32", "FP64", "BF16")
        for given in [raw(datatype, [1, 4], NOT_FINITE)]
        for form, outputs in (("binary", []), ("json", [wanted()]))
    ),
    case("BYTES_any_bytes_binary", infer_binary("identity_bytes", raw("BYTES", [1, 4], BYTES_ELEMENTS))),
    case("BYTES_nul_to_json", infer_binary("identity_bytes", raw("BYTES", [1, 1], [b"a\x00b"]), outputs=[wanted()])),
    case("BYTES_not_utf8_binary", infer_binary("identity_bytes", raw("BYTES", [1, 1], [b"\xff\xfe"]))),
    case(
        "BYTES_not_utf8_to_json",
        infer_binary("identity_bytes", raw("BYTES", [1, 1], [b"\xff\xfe"]), outputs=[wanted()]),
    ),
    case("BYTES_nested", infer("identity_bytes", tensor("BYTES", [2, 1], [["a"], ["b"]]))),
    case("BYTES_flat", infer("identity_bytes", tensor("BYTES", [2, 1], ["a", "b"]))),
    case("BYTES_nested_wrongly", infer("identity_bytes", tensor("BYTES", [2, 1], [["a", "b"]]))),
    case("BYTES_ragged_nesting", infer("identity_bytes", tensor("BYTES", [1, 3], [["a", ["b"]], "c"]))),
    case("BYTES_escapes", infer("identity_bytes", tensor("BYTES", [1, 2], ['q"\\/\n\t\u0001', "\U0001f600"]))),
]
