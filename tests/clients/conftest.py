"""One server with the models of Triton's example programs for all tests of its client library."""

from collections.abc import Iterator

import pytest
from tests.clients.triton_rig import TritonServer, serving_triton_models


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with serving_triton_models(tmp_path_factory.mktemp("triton"), "--allow-shared-memory") as server:
        yield server
