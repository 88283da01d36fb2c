"""What a model is told beside the tensors, as one JSON text."""

from __future__ import annotations

import json

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.known = {name: args[name] for name in ("model_name", "model_version", "model_instance_kind")}
        self.greeting = json.loads(args["model_config"])["parameters"]["greeting"]["string_value"]

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        return [self.answer(request) for request in requests]

    def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        told = {
            "id": request.request_id(),
            "correlation": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "outputs": sorted(request.requested_output_names()),
            "parameters": json.loads(request.parameters()),
            "greeting": self.greeting,
            **self.known,
        }
        text = json.dumps(told, sort_keys=True).encode()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", numpy.array([text], dtype=object))])
