"""How many files this process may have open: a server has one for every connection."""

import resource

_ENOUGH = 65536


def raise_open_files_limit() -> int:
    """Raise the soft limit as far as this user may, but not beyond what a server needs; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft
