"""What the fake model says: scripts from ids to the next token, and the synthetic logits behind them."""

import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tribar.core.sampling.reference import Float32s
from tribar.core.sampling.seeds import splitmix64
from tribar.runtime.runner import Int32s

Script = Callable[[Int32s, int], int | Float32s]
"""``script(ids, n_prompt)`` answers for the token after ``ids``, of which ``n_prompt`` are prompt.

An int forces that token (its logit is far above all others, so that grammar masks, bans and ``min_tokens`` still
apply); an array of shape [vocab] is taken as logits. Called exactly once per drawn token, in order; ``ids`` is a
read-only view. An exception fails the whole step, as a crash in a kernel would; NaN logits fail the row alone.
"""

_FORCED_LOGIT = 1000.0


def pattern_logits(seed: int, vocab_size: int) -> Float32s:
    """Deterministic logits in [0, 8) that differ from id to id and from seed to seed; shape [vocab_size]."""
    state = np.arange(vocab_size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(splitmix64(seed))
    state = (state ^ (state >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((state >> np.uint64(40)).astype(np.float32) / np.float32(1 << 21)).astype(np.float32)


def forcing_logits(token_id: int, vocab_size: int) -> Float32s:
    """Logits under which ``token_id`` is drawn whatever the sampling parameters, unless it is forbidden."""
    logits = pattern_logits(token_id, vocab_size)
    logits[token_id] = _FORCED_LOGIT
    return logits


def hash_script(vocab_size: int) -> Script:
    """Each next token is a hash of all ids so far: any error in ids or positions changes everything after it."""
    return lambda ids, n_prompt: zlib.crc32(ids.tobytes()) % vocab_size


def logits_script(vocab_size: int) -> Script:
    """Logits made from a hash of all ids so far: a small stand-in for a model that is really sampled."""
    return lambda ids, n_prompt: pattern_logits(zlib.crc32(ids.tobytes()), vocab_size)


def token_lists(replies: Mapping[tuple[int, ...], Sequence[int]], end_id: int) -> Script:
    """The reply of each prompt, token by token, then ``end_id``. A prompt without a reply is a ``KeyError``."""

    def script(ids: Int32s, n_prompt: int) -> int:
        reply = replies[tuple(ids[:n_prompt].tolist())]
        index = len(ids) - n_prompt
        return reply[index] if index < len(reply) else end_id

    return script
