"""The text as often as ``count`` says, in capitals where ``loud``, and the sum of ``weights``."""

from __future__ import annotations

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [answer(request) for request in requests]


def answer(request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
    given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    text = given["text_input"][0]
    if "loud" in given and given["loud"][0]:
        text = text.upper()
    total = given["weights"].sum(keepdims=True) if "weights" in given else numpy.zeros(1, dtype=numpy.float32)
    texts = numpy.array([text] * int(given.get("count", [1])[0]), dtype=object)
    return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", texts), pb_utils.Tensor("total", total)])
