"""schemathesis makes requests out of our own OpenAPI document and holds the answers against it.

No answer is a 5xx (see ``schemathesis.toml`` for the one that is meant), each has a documented status, type and shape,
what breaks the document is refused, and no request takes longer than ten seconds.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clients.environments import CLIENTS
from tests.e2e.server_process import serving, write_model


def n_cases(directory: Path, timeout_s: float, *options: str) -> int:
    """How many requests a run made. Fails with its report where one found something."""
    shutil.copy(CLIENTS / "schemathesis.toml", directory)
    with serving(str(write_model(directory))) as server:
        command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "run", f"{server.url}/openapi.json"]
        run = subprocess.run(
            [*command, *options], cwd=directory, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
    errors = [line for line in server.lines if " ERROR " in line or "Traceback" in line]
    assert not errors, errors[:3]
    found = re.search(r"(\d+) generated", run.stdout)
    assert found is not None, run.stdout
    return int(found[1])


def test_a_few_requests_made_from_the_document(tmp_path: Path) -> None:
    assert n_cases(tmp_path, 50, "--phases", "fuzzing", "--max-examples", "6") >= 50


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_thousand_requests_made_from_the_document(tmp_path: Path) -> None:
    assert n_cases(tmp_path, 850, "--phases", "examples,coverage,fuzzing", "--max-examples", "60") >= 2000
