"""OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1; only what the request wants."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [answer(request) for request in requests]


def answer(request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
    left, right = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
    made = {"OUTPUT0": left + right, "OUTPUT1": left - right}
    wanted = request.requested_output_names()
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, made[name]) for name in made if name in wanted])
