"""A step of the native runner allocates nothing: the C library's allocator is counted while steps run."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def test_a_step_allocates_nothing(tmp_path: Path) -> None:
    """From the first step on where only tokens are wanted; else as soon as a step has had as much to tell before."""
    counter = tmp_path / "count_allocations.so"
    source = str(HERE / "count_allocations.cpp")
    subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", source, "-o", str(counter)], check=True)
    environment = os.environ | {"LD_PRELOAD": str(counter), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    run = subprocess.run(
        [sys.executable, str(HERE / "stepping.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["control 1", "plain 0 0 0 0", "wanting 0 0 0 0"]
