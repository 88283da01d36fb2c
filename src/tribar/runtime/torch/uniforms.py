"""``tribar.core.sampling.philox.uniform`` for many rows at once."""

import numpy as np
import numpy.typing as npt

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_WORD, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniforms(seeds: npt.NDArray[np.uint64], output_indices: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """[n] numbers in [0, 1), from Philox4x32-10 (Salmon et al., SC'11) with key = seed, counter = (index, 0, 0, 0).

    A product of two 32-bit words fits in 64 bits, so nothing overflows.
    """
    keys = [seeds & _WORD, seeds >> _SHIFT]
    zero = np.zeros_like(output_indices)
    counter = [output_indices & _WORD, zero, zero, zero]
    for _ in range(10):
        product0, product1 = _MULTIPLIERS[0] * counter[0], _MULTIPLIERS[1] * counter[2]
        counter = [
            (product1 >> _SHIFT) ^ counter[1] ^ keys[0],
            product1 & _WORD,
            (product0 >> _SHIFT) ^ counter[3] ^ keys[1],
            product0 & _WORD,
        ]
        keys = [(key + step) & _WORD for key, step in zip(keys, _WEYL, strict=True)]
    words: npt.NDArray[np.uint64] = counter[0]
    return (words >> np.uint64(8)).astype(np.float64) / (1 << 24)
