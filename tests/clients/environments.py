"""Virtual environments for clients whose packages are not ours; kept in ``build/clients`` from run to run."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).parent
BUILT = CLIENTS.parents[1] / "build" / "clients"
INSTALL_TIMEOUT_S = 900.0


def python_of(name: str) -> Path:
    """The interpreter of an environment with the packages of ``NAME.txt``, made where there is none or an older one.

    Fails with pip's last lines where they cannot be installed.
    """
    requirements = CLIENTS / f"{name}.txt"
    place = BUILT / name
    python = place / "bin" / "python"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = hashlib.sha256(sys.version.encode() + requirements.read_bytes()).hexdigest()
        stamp = place / "made-from"
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            _finish([sys.executable, "-m", "venv", str(place)])
            _finish([str(python), "-m", "pip", "install", "--disable-pip-version-check", "-r", str(requirements)])
            stamp.write_text(wanted)
    return python


def run_client(command: list[str], *, directory: Path, timeout_s: float = 300.0) -> str:
    """What ``command`` writes, run offline in ``directory`` without our own packages on its path.

    Fails unless it ends well.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(directory)}
    environment |= {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "NO_COLOR": "1"}
    return _finish(command, timeout_s, environment, directory)


def _finish(
    command: list[str],
    timeout_s: float = INSTALL_TIMEOUT_S,
    environment: dict[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    run = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        env=environment,
        cwd=directory,
        check=False,
    )
    last = "\n".join(run.stdout.splitlines()[-40:])
    assert run.returncode == 0, f"{' '.join(command)} ended with {run.returncode}:\n{last}"
    return run.stdout
