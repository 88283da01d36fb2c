"""Requests that end the real server, Triton 2.51, with the answer that a server has to give instead."""

from tests.differential.case import Case, case
from tests.differential.cases.requests import infer, post, tensor
from tests.differential.observe import Answer

REFUSED: Answer = {"status": 400, "error": "says why"}
DEEP = '{"inputs":' + "[" * 250000 + "]" * 250000 + "}"

CASES: list[tuple[Case, Answer]] = [
    (case("body_very_deep", post("/v2/models/identity_fp32/infer", DEEP)), REFUSED),
    (case("shape_large_unfilled", infer("identity_fp32", tensor("FP32", [1, 2**40], [1]))), REFUSED),
]
