import os
import socket
import stat
from pathlib import Path

import pytest

from tribar.core.errors import Conflict, InvalidRequest
from tribar.wire.socket_file import MAX_PATH_BYTES, listen, unlink_if_ours


def test_only_the_owner_can_reach_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "run" / "engine.sock"
    with listen(path, 1):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    listen(path, 1).close()
    assert path.exists()
    with listen(path, 1), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))


def test_a_live_engine_is_not_pushed_aside(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with listen(path, 1):
        with pytest.raises(Conflict, match=r"another engine listens on .*engine\.sock"):
            listen(path, 1)
        assert path.exists()


def test_an_ordinary_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    path.write_text("precious")
    with pytest.raises(Conflict, match="is not a socket"):
        listen(path, 1)
    assert path.read_text() == "precious"


def test_a_path_that_cannot_hold_a_socket_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"longer than {MAX_PATH_BYTES} bytes"):
        listen(tmp_path / ("x" * MAX_PATH_BYTES), 1)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match=r"cannot listen on socket .*file/engine\.sock"):
        listen(tmp_path / "file" / "engine.sock", 1)


def test_only_the_own_socket_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with listen(path, 1):
        inode = path.stat().st_ino
        unlink_if_ours(path, inode + 1)
        assert path.exists()
        unlink_if_ours(path, inode)
        unlink_if_ours(path, inode)
        assert not path.exists()
    assert os.listdir(tmp_path) == []  # noqa: PTH208
