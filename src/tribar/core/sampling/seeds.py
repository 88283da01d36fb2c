"""Seeds of the n choices of one request."""

_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def splitmix64(state: int) -> int:
    """The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA'14) on a uint64 state; a bijection."""
    z = state & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def choice_seed(seed: int, choice: int) -> int:
    """The uint64 seed of choice ``choice`` (0 ... n-1) of a request whose uint64 seed is ``seed``.

    Choice 0 keeps the seed, so a request with n = 1 draws what choice 0 of the same request with n > 1 draws.
    Choice i > 0 gets the i-th output of a SplitMix64 generator that starts from ``seed``.
    """
    if choice == 0:
        return seed & _MASK
    return splitmix64(seed + choice * _GOLDEN_GAMMA)
