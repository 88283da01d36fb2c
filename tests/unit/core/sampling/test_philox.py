"""Known answers of Philox4x32-10, and the uniforms made from it."""

import numpy as np
import pytest

from tribar.core.sampling.philox import DRAW, Words4, philox4x32, uniform

# The three vectors of the authors' Random123 distribution (file kat_vectors, "philox4x32 10").
KNOWN_ANSWERS: list[tuple[Words4, tuple[int, int], Words4]] = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers(counter: Words4, key: tuple[int, int], expected: Words4) -> None:
    assert philox4x32(key, counter) == expected


def test_uniform_is_the_top_24_bits_of_word_0() -> None:
    seed = (7 << 32) | 5
    word = philox4x32((5, 7), (11, DRAW, 0, 0))[0]
    assert uniform(seed, 11) == (word >> 8) / 2**24
    assert float(np.float32(uniform(seed, 11))) == uniform(seed, 11)


def test_uniform_depends_on_seed_halves_index_and_purpose() -> None:
    draws = {uniform(s, i, p) for s in (1, 2, 1 << 32, 2 << 32) for i in (0, 1, 2) for p in (0, 1)}
    assert len(draws) == 24


def test_uniforms_are_uniform() -> None:
    """Chi-square over 20 bins, 19 degrees of freedom: 43.8 is the 99.9 % quantile."""
    n = 20_000
    counts = np.bincount([int(uniform(seed, index) * 20) for seed in range(20) for index in range(n // 20)])
    assert len(counts) == 20
    assert ((counts - n / 20) ** 2 / (n / 20)).sum() < 43.8
