"""A child process must not outlive the process that started it."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Linux prctl(2): the signal the kernel sends to this process when its parent dies."""


def die_with_parent(parent_pid: int) -> bool:
    """Have the kernel kill this process when its parent dies; False when ``parent_pid`` is already gone.

    Only Linux offers this; elsewhere the call checks the parent once. The kernel watches the parent from the call on,
    so a parent that died before it shows as another parent pid.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    return os.getppid() == parent_pid
