"""INPUT0 + INPUT1, where a missing INPUT1 counts as 10."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [answer(request) for request in requests]


def answer(request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
    left = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
    right = pb_utils.get_input_tensor_by_name(request, "INPUT1")
    total = left + (10 if right is None else right.as_numpy())
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", total)])
