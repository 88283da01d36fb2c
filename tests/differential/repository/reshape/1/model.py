"""The inputs as they came, and how many dimensions the model saw of each: [batch] and [batch, 4]."""

from __future__ import annotations

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [answer(request) for request in requests]


def answer(request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
    given = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1")]
    ranks = numpy.array([[value.ndim for value in given]] * len(given[0]), dtype=numpy.int32)
    outputs = [pb_utils.Tensor("OUTPUT0", given[0]), pb_utils.Tensor("OUTPUT1", given[1])]
    return pb_utils.InferenceResponse([*outputs, pb_utils.Tensor("RANKS", ranks)])
