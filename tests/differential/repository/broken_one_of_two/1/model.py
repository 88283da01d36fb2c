"""Its first instance is well and its second is not."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        if args["model_instance_name"].endswith("_1"):
            raise pb_utils.TritonModelException("the second instance fails")
