"""Requests that end the real server, Triton 2.51, or hang it, with the answers that a server has to give instead."""

from tests.differential.case import Case, Http, case
from tests.differential.cases.requests import grpc_infer, infer, post, tensor, wanted
from tests.differential.observe import Answer

DEEP = '{"inputs":' + "[" * 250000 + "]" * 250000 + "}"
NOTHING = tensor("BYTES", [1, 1], ["none"])
REFUSED: Answer = {"status": 400, "error": "says why"}
UNFILLED: Answer = {"status": 500, "error": "says why"}
"""As Triton answers smaller shapes that the data does not fill."""
BROKE: Answer = {"status": 500, "error": "says why"}

CASES: list[tuple[Case, list[Answer]]] = [
    (case("json_very_deep", post("/v2/models/identity_fp32/infer", DEEP)), [REFUSED]),
    (case("shape_large_unfilled", infer("identity_fp32", tensor("FP32", [1, 2**40], [1]))), [UNFILLED]),
    (
        case(
            "classes_of_text",
            infer("identity_bytes", tensor("BYTES", [1, 2], ["a", "b"]), outputs=[wanted(classification=1)]),
        ),
        [REFUSED],
    ),
    (
        case("fault_none", infer("faults", NOTHING), grpc_infer("faults", NOTHING)),
        [BROKE, {"code": "INTERNAL", "error": "says why"}],
    ),
    (
        case(
            "load_broken_no_file",
            post("/v2/repository/models/broken_no_file/load", ""),
            Http("GET", "/v2/models/broken_no_file/ready"),
            Http("GET", "/v2/health/live"),
        ),
        [REFUSED, REFUSED, {"status": 200, "type": "application/json", "content": {"live": True}}],
    ),
]
