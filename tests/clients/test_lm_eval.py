"""lm-eval's ``local-completions`` over our log-probabilities, on a task that needs no downloads."""

import sysconfig
from pathlib import Path

import pytest
from tests.clients.environments import CLIENTS, python_of, run_client
from tests.e2e.server_process import serving

from tribar.runtime.sources import DEFAULT_MODEL, fetch_model

MODEL = "smollm2"


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_log_likelihoods_equal_those_of_its_hugging_face_backend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within 1e-3 per token, prompts as texts and as token ids, one by one and together; weights in fp32."""
    python, gguf = python_of("lm_eval"), fetch_model(DEFAULT_MODEL)
    packages = sysconfig.get_path("purelib")
    with serving("--served-model-name", MODEL, "--weights", "f32", "--kv-cache-dtype", "f32") as server:
        command = [str(python), str(CLIENTS / "lm_eval_script.py"), server.url, MODEL, str(gguf), packages]
        output = run_client(command, directory=tmp_path, timeout_s=900)
    with capsys.disabled():
        print("", *(line for line in output.splitlines() if line.endswith("per token")), sep="\n")
