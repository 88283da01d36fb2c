"""The ``tribar`` command as a child of the test, for commands that end by themselves."""

import subprocess
import sys


def run_tribar(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run it with ``text`` on standard input."""
    command = [sys.executable, "-m", "tribar", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
