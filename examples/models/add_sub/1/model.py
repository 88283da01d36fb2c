"""A model of the Python backend: the same file runs on Triton."""

from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUTPUT0 is the sum of the inputs, OUTPUT1 their difference."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response for each request of the batch, in their order."""
        responses = []
        for request in requests:
            left = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            right = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT0", left + right), pb_utils.Tensor("OUTPUT1", left - right)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
