"""The ``kserve`` client, unmodified and in an environment of its own, against ``tribar serve``."""

from pathlib import Path

import pytest
from tests.clients.environments import CLIENTS, python_of, run_client
from tests.clients.triton_rig import TritonServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


def test_rest_and_grpc(triton: TritonServer, tmp_path: Path) -> None:
    """Its script asserts what it gets, and ends with 0."""
    script = str(CLIENTS / "kserve_script.py")
    run_client([str(python_of("kserve")), script, f"http://{triton.http}", triton.grpc], directory=tmp_path)
