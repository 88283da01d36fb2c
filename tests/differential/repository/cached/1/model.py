"""The input and the number of the execution: an answer from the cache repeats an old number."""

from __future__ import annotations

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.turn = 0

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.answer(request) for request in requests]

    def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        self.turn += 1
        value = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        turn = numpy.full_like(value, self.turn)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", value), pb_utils.Tensor("TURN", turn)])
