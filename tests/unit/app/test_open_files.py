"""The limit is the whole process's, so each case has a process of its own."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource
from tribar.app.open_files import raise_open_files_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(raise_open_files_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "expected"), [(256, 1024, "1024 1024 1024"), (512, 512, "512 512 512")], ids=["raised", "full"]
)
def test_the_soft_limit_goes_up_to_the_hard_one(soft: int, hard: int, expected: str) -> None:
    """BUG-089: two thousand streams need as many descriptors, and many systems allow 1024 until asked."""
    script = SCRIPT.format(soft=soft, hard=hard)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == expected
