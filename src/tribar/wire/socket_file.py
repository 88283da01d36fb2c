"""A listening unix socket that only its owner can reach."""

import contextlib
import os
import socket
import stat
from pathlib import Path

from tribar.core.errors import Conflict, InvalidRequest

MAX_PATH_BYTES = 103
"""Longest socket path that every platform takes: sun_path has 104 (macOS) or 108 (Linux) bytes with its zero."""


def listen(path: Path, backlog: int) -> socket.socket:
    """Bind and listen on ``path``, mode 0600, non-blocking; a missing directory is made with mode 0700.

    A socket file that nobody listens on any more is replaced. Raises ``InvalidRequest`` for a path that cannot hold a
    socket and ``Conflict`` when a live process listens there or the file is something else.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise InvalidRequest(
            f"socket path {path} is longer than {MAX_PATH_BYTES} bytes: choose a shorter directory", param="socket"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale(path)
        listener.bind(str(path))
        path.chmod(0o600)  # nobody can connect before listen(), so there is no moment of wider access
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise InvalidRequest(f"cannot listen on socket {path}: {error.strerror}", param="socket") from error
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Conflict(f"{path} exists and is not a socket: remove it or choose another socket path", param="socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # a full backlog: somebody listens
    raise Conflict(f"another engine listens on {path}: stop it or choose another socket path", param="socket")


def unlink_if_ours(path: Path, inode: int) -> None:
    """Remove the socket file unless a successor has already put its own in the place."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_ino == inode:
            path.unlink()
