"""Philox4x32-10, the counter-based generator behind every random draw.

Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC'11). A draw is a pure function
of (key, counter), so it does not depend on what shares the batch, on the runner or on earlier draws.
"""

DRAW = 0
"""Purpose of the one draw that picks an output token. Other purposes get other numbers, never this stream."""

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = 0xFFFFFFFF

Words4 = tuple[int, int, int, int]


def philox4x32(key: tuple[int, int], counter: Words4) -> Words4:
    """Four uint32 words for a key of two and a counter of four uint32 words."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(_ROUNDS):
        product0 = _MULTIPLIERS[0] * c0
        product1 = _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & _WORD,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & _WORD,
        )
        k0 = (k0 + _WEYL[0]) & _WORD
        k1 = (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, output_index: int, purpose: int = DRAW) -> float:
    """The number in [0, 1) that decides output token ``output_index`` of a sequence with this uint64 ``seed``.

    The top 24 bits of word 0 over 2^24, with key (low, high half of the seed) and counter (output_index, purpose,
    0, 0); exact in fp32 as well as in fp64.
    """
    word = philox4x32((seed & _WORD, (seed >> 32) & _WORD), (output_index & _WORD, purpose, 0, 0))[0]
    return (word >> 8) / (1 << 24)
