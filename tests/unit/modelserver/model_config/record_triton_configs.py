"""Record what a real Triton makes of ``triton_configs/*.pbtxt``: ``python record_triton_configs.py URL REPOSITORY``.

REPOSITORY is the empty model repository of a Triton with the Python backend in explicit mode; URL is where it serves.
"""

import json
import sys
import urllib.request
from pathlib import Path

CONFIGS = Path(__file__).parent / "triton_configs"

MODEL = """
import triton_python_backend_utils as utils


class TritonPythonModel:
    def execute(self, requests):
        tensors = [utils.get_input_tensor_by_name(request, "IN") for request in requests]
        return [utils.InferenceResponse([utils.Tensor("OUT", tensor.as_numpy())]) for tensor in tensors]
"""


def record(url: str, repository: Path) -> None:
    for file in sorted(CONFIGS.glob("*.pbtxt")):
        (repository / file.stem / "1").mkdir(parents=True, exist_ok=True)
        (repository / file.stem / "1/model.py").write_text(MODEL)
        (repository / file.stem / "config.pbtxt").write_bytes(file.read_bytes())
        load = urllib.request.Request(f"{url}/v2/repository/models/{file.stem}/load", data=b"{}")
        urllib.request.urlopen(load).close()
        with urllib.request.urlopen(f"{url}/v2/models/{file.stem}/config") as answer:
            file.with_suffix(".json").write_text(json.dumps(json.load(answer), indent=1) + "\n")


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
