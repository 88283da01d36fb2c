"""``count`` responses, each the text and its index; an error in the place of number ``fail_at``."""

from __future__ import annotations

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        for request in requests:
            respond(request)


def respond(request: pb_utils.InferenceRequest) -> None:
    given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    sender = request.get_response_sender()
    for index in range(int(given.get("count", [1])[0])):
        if index == int(given.get("fail_at", [-1])[0]):
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(f"no response {index}")))
            continue
        text = given["text_input"][0] + f" {index}".encode()
        output = pb_utils.Tensor("text_output", numpy.array([text], dtype=object))
        sender.send(pb_utils.InferenceResponse([output]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
