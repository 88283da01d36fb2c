"""Clients other than ``openai``, unmodified, each in an environment of its own, against ``tribar serve``."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.environments import CLIENTS, python_of, run_client
from tests.e2e.server_process import Server, serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

MODEL = "smollm2"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--served-model-name", MODEL, "--tool-call-parser", "hermes") as server:
        assert server.port
        yield server


@pytest.mark.parametrize("client", ["langchain", "llama_index", "instructor", "pydantic_ai"])
def test_a_client_library(client: str, server: Server, tmp_path: Path) -> None:
    """Its script asserts what it gets, and ends with 0."""
    script = CLIENTS / f"{client}_script.py"
    run_client([str(python_of(client)), str(script), server.url, MODEL], directory=tmp_path)
