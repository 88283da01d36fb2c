"""From settings to what stands at the edge."""

from pathlib import Path

import pytest

from tribar.app.config import ServeConfig, ServerConfig
from tribar.app.edge import Edge
from tribar.core.errors import InvalidRequest
from tribar.gateway.config import GatewayConfig


def test_the_defaults_are_those_of_the_parts() -> None:
    edge = Edge.of(ServeConfig(), 7, {})
    assert edge.gateway == GatewayConfig()
    assert (edge.connections.max_connections, edge.keys, edge.public_prefix) == (7, None, "")


def test_everything_set(tmp_path: Path) -> None:
    (tmp_path / "prefix.txt").write_text("Be brief.\n\n")
    server = ServerConfig(
        max_body_bytes=5000,
        ping_interval_s=1,
        stall_timeout_s=2,
        cors_origins=("https://a.example",),
        public_prefix=str(tmp_path / "prefix.txt"),
    )
    edge = Edge.of(ServeConfig(server=server), 7, {"TRIBAR_API_KEY": "x" * 16})
    assert (edge.gateway.max_body_bytes, edge.gateway.ping_interval_s, edge.gateway.stall_timeout_s) == (5000, 1, 2)
    assert (edge.gateway.cors_origins, edge.connections.stall_s) == (("https://a.example",), 2)
    assert edge.public_prefix == "Be brief."
    assert edge.keys is not None
    assert edge.keys.tenant_of(b"x" * 16)


@pytest.mark.parametrize(
    ("content", "message"), [(b"\n", "is empty"), (b"\xff", "not UTF-8"), (b"x" * 2**21, "larger")]
)
def test_a_public_prefix_that_is_none(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "prefix.txt"
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=f"prefix.txt.*{message}"):
        Edge.of(ServeConfig(server=ServerConfig(public_prefix=str(path))), 1, {})
