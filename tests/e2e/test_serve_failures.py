"""What keeps a server from starting: one line, a way out, a non-zero exit code, no traceback."""

import socket
from pathlib import Path

from tests.e2e.server_process import write_model
from tests.e2e.tribar_command import run_tribar


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run_tribar("serve", str(write_model(tmp_path)), "--port", port)
    assert result.returncode == 1
    assert result.stderr == f"error: port {port} on 127.0.0.1 is in use\ntry: --port 0 for any free one\n"


def test_a_broken_model_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 40)
    result = run_tribar("serve", str(path), "--port", "0")
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert str(path) in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_model() -> None:
    result = run_tribar("serve", "no/such/model.gguf", "--port", "0")
    assert result.returncode == 1
    assert "no model at 'no/such/model.gguf'" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in run_tribar("serve", "no/such/model.gguf", "--port", "0", "--debug").stderr


def test_wrong_usage(tmp_path: Path) -> None:
    result = run_tribar("serve", str(write_model(tmp_path)), "--threads", "0")
    assert result.returncode == 2
    assert result.stderr == "error: --threads: expected a whole number from 1 to 1024, got '0'\n"


def test_a_public_address_is_warned_about() -> None:
    result = run_tribar("serve", "no/such/model.gguf", "--port", "0", "--host", "0.0.0.0")
    assert "warning: http://localhost:" in result.stderr
