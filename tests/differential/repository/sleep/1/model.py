"""Waits for as many milliseconds as the largest INPUT0 of the batch says.

Answers the input, how many requests were executed together (SIZE) and the number of the execution (TURN).
"""

from __future__ import annotations

import threading

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.turn = 0

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        self.turn += 1
        given = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        threading.Event().wait(max(int(value.max()) for value in given) / 1000)
        return [self.answer(value, len(requests)) for value in given]

    def answer(self, value: numpy.ndarray, n_requests: int) -> pb_utils.InferenceResponse:
        size, turn = (numpy.full_like(value, number) for number in (n_requests, self.turn))
        named = {"OUTPUT0": value, "SIZE": size, "TURN": turn}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, tensor) for name, tensor in named.items()])
