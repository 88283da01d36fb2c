"""What it was asked before the first real request: the sizes of the batches and the words."""

from __future__ import annotations

import json

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.seen: list[tuple[int, str]] = []

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        words = [pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy() for request in requests]
        answer = json.dumps(self.seen).encode()
        self.seen += [(len(word), word.ravel()[0].decode()) for word in words]
        return [pb_utils.InferenceResponse([tensor(answer, len(word))]) for word in words]


def tensor(text: bytes, n_rows: int) -> pb_utils.Tensor:
    return pb_utils.Tensor("OUTPUT0", numpy.full((n_rows, 1), text, dtype=object))
