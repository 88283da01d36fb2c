"""Its own version."""

from __future__ import annotations

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.version = int(args["model_version"])

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [pb_utils.InferenceResponse([self.answer()]) for _ in requests]

    def answer(self) -> pb_utils.Tensor:
        return pb_utils.Tensor("OUTPUT0", numpy.array([self.version], dtype=numpy.int64))
