"""Goes wrong in the way that INPUT0 names."""

from __future__ import annotations

import numpy
import triton_python_backend_utils as pb_utils

CODES = {"unknown", "internal", "not_found", "invalid_arg", "unavailable", "unsupported", "already_exists", "cancelled"}


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse] | str | None:
        faults = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        names = [fault.ravel()[0].decode() for fault in faults]
        if "raise" in names:
            raise RuntimeError("the model gives up")
        if "raise_model_error" in names:
            raise pb_utils.TritonModelException("the model says no")
        if "none" in names:
            return None
        if "text" in names:
            return "no list"
        answers = [answer(name, len(fault)) for name, fault in zip(names, faults, strict=True)]
        return answers[1:] if "too_few" in names else answers


def answer(name: str, n_rows: int) -> pb_utils.InferenceResponse:
    numbers = pb_utils.Tensor("OUTPUT0", numpy.ones((n_rows, 2), dtype=numpy.int32))
    text = pb_utils.Tensor("OUTPUT1", numpy.full((n_rows, 1), name.encode(), dtype=object))
    match name:
        case "error":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("the model reports"))
        case "both":
            return pb_utils.InferenceResponse([numbers, text], pb_utils.TritonError("an error beside outputs"))
        case "wrong_shape":
            numbers = pb_utils.Tensor("OUTPUT0", numpy.ones((n_rows, 3), dtype=numpy.int32))
        case "wrong_batch":
            numbers = pb_utils.Tensor("OUTPUT0", numpy.ones((n_rows + 1, 2), dtype=numpy.int32))
        case "wrong_rank":
            numbers = pb_utils.Tensor("OUTPUT0", numpy.ones((n_rows, 2, 1), dtype=numpy.int32))
        case "wrong_type":
            numbers = pb_utils.Tensor("OUTPUT0", numpy.ones((n_rows, 2), dtype=numpy.float32))
        case "wrong_name":
            numbers = pb_utils.Tensor("OUTPUT7", numpy.ones((n_rows, 2), dtype=numpy.int32))
        case "missing_output":
            return pb_utils.InferenceResponse([text])
        case "no_outputs":
            return pb_utils.InferenceResponse([])
        case "not_utf8":
            text = pb_utils.Tensor("OUTPUT1", numpy.full((n_rows, 1), b"\xff\xfe", dtype=object))
    if name in CODES:
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError(f"this is {name}", getattr(pb_utils.TritonError, name.upper()))
        )
    return pb_utils.InferenceResponse([numbers, text])
