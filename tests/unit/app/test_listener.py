"""Binding the HTTP port."""

import socket

import pytest

from tribar.app.listener import bind, is_public, listen, url_of
from tribar.core.errors import Conflict, InvalidRequest


def test_any_free_port_on_loopback() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        assert not is_public(listener)
        listen(listener)
        with socket.create_connection(("127.0.0.1", port)):
            pass


@pytest.mark.parametrize(
    ("host", "prefix", "public"),
    [
        ("localhost", "http://127.0.0.1:", False),
        ("::1", "http://[::1]:", False),
        ("0.0.0.0", "http://localhost:", True),
    ],
)
def test_urls_are_ones_that_a_client_here_can_use(host: str, prefix: str, public: bool) -> None:
    with bind(host, 0) as listener:
        assert url_of(listener) == f"{prefix}{listener.getsockname()[1]}"
        assert is_public(listener) == public


def test_a_taken_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Conflict, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])


def test_two_that_bind_and_one_that_listens_first() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with bind("127.0.0.1", port) as second:
            listen(first)
            with pytest.raises(Conflict, match=f"port {port} on 127.0.0.1 is in use"):
                listen(second)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7", "a" * 300])
def test_addresses_that_are_not_ours_are_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--host 127\.0\.0\.1"):
        bind(host, 0)
