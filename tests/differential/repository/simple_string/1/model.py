"""The sum and the difference of integers that are written as text."""

from __future__ import annotations

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [answer(request) for request in requests]


def answer(request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
    names = ("INPUT0", "INPUT1")
    left, right = (pb_utils.get_input_tensor_by_name(request, name).as_numpy().astype(numpy.int64) for name in names)
    made = {"OUTPUT0": left + right, "OUTPUT1": left - right}
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, as_text(value)) for name, value in made.items()])


def as_text(numbers: numpy.ndarray) -> numpy.ndarray:
    return numpy.array([str(number).encode() for number in numbers.ravel()], dtype=object).reshape(numbers.shape)
