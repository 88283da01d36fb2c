"""Scripted replies of a fake model file: what is said, and what goes wrong, per prompt."""

import math
import os
import signal
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tribar.core.errors import Internal
from tribar.core.sampling.reference import Float32s
from tribar.runtime.runner import Int32s

N_BYTES = 256
"""Ids below this are bytes; special tokens follow."""

Fault = str
FAULTS: frozenset[Fault] = frozenset({"nan", "raise", "kill"})
"""``nan``: non-finite logits, which fail the row alone. ``raise``: the step fails. ``kill``: SIGKILL to the process."""


@dataclass(frozen=True, slots=True)
class Say:
    """One token of a reply, after a pause; or a fault in its place."""

    token_id: int = 0
    pause_s: float = 0.0
    fault: Fault = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What follows a prompt whose bytes contain ``match``; then the end token."""

    match: bytes
    says: tuple[Say, ...]


def letters(ids: Int32s, n_prompt: int) -> int:
    """Endless lower-case letters, a hash of all ids so far."""
    return ord("a") + zlib.crc32(ids.tobytes()) % 26


class ReplyScript:
    """A ``Script`` of replies; the first that matches the prompt counts, ``default`` where none does."""

    def __init__(
        self,
        replies: Sequence[Reply],
        *,
        default: Callable[[Int32s, int], int] = letters,
        end_id: int,
        vocab_size: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._replies = tuple(replies)
        self._default = default
        self._end_id = end_id
        self._vocab_size = vocab_size
        self._sleep = sleep

    def __call__(self, ids: Int32s, n_prompt: int) -> int | Float32s:
        """The next token of the reply to this prompt."""
        prompt = ids[:n_prompt]
        text = prompt[prompt < N_BYTES].astype(np.uint8).tobytes()
        for reply in self._replies:
            if reply.match in text:
                return self._say(reply, len(ids) - n_prompt)
        return self._default(ids, n_prompt)

    def _say(self, reply: Reply, index: int) -> int | Float32s:
        if index >= len(reply.says):
            return self._end_id
        say = reply.says[index]
        if say.pause_s:
            self._sleep(say.pause_s)
        match say.fault:
            case "nan":
                return np.full(self._vocab_size, math.nan, dtype=np.float32)
            case "raise":
                raise Internal("the fake model's script says: fail here")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return say.token_id


def echo(end_id: int) -> Callable[[Int32s, int], int]:
    """Says the prompt's ids again, then the end token."""

    def script(ids: Int32s, n_prompt: int) -> int:
        index = len(ids) - n_prompt
        return int(ids[index]) if index < n_prompt else end_id

    return script
