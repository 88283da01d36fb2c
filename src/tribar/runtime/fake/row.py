"""State of one row of the fake runner."""

import zlib

import numpy as np

from tribar.core.errors import Internal
from tribar.core.sampling.reference import Mask, sample_row, token_logprobs
from tribar.runtime.fake.memory import FakeMemory, Fingerprints, has_duplicates
from tribar.runtime.fake.script import Script, forcing_logits, pattern_logits
from tribar.runtime.runner import AddRow, Int32s, RowResult

_WORD = (1 << 64) - 1
_HIDDEN_SIZE = 4


class FakeRow:
    """Ids, their fingerprints, the block table, and how far the KV memory is filled.

    ``n_computed`` is None until the first work, which may start above 0 behind a cached prefix.
    """

    def __init__(self, add: AddRow, *, max_len: int, vocab_size: int) -> None:
        ids = add.ids
        if ids.dtype != np.int32 or ids.ndim != 1 or not 1 <= add.n_prompt <= len(ids) <= max_len:
            raise Internal(
                f"row {add.row}: {ids.dtype} ids of shape {ids.shape} with {add.n_prompt} of prompt do not fit a row"
            )
        if ids.min() < 0 or ids.max() >= vocab_size:
            raise Internal(f"row {add.row}: an id is outside the vocabulary of {vocab_size}")
        self.row = add.row
        self.n_prompt = add.n_prompt
        self.sampling = add.sampling
        self.wants = add.wants
        self.table: Int32s = np.zeros(0, dtype=np.int32)
        self.n_computed: int | None = None
        self.error = ""
        self.n_ids = 0
        self._vocab_size = vocab_size
        self._root = zlib.crc32(add.adapter.encode())
        self._max_len = max_len
        # With two steps in flight a full row may draw one token more, which the engine throws away.
        self._ids: Int32s = np.zeros(max_len + 1, dtype=np.int32)
        self._fingerprints: Fingerprints = np.zeros(max_len + 1, dtype=np.uint64)
        for token_id in ids.tolist():
            self.append(token_id)

    @property
    def ids(self) -> Int32s:
        """All ids held now, as a read-only view."""
        view = self._ids[: self.n_ids]
        view.flags.writeable = False
        return view

    def has_room(self) -> bool:
        """Whether the last id may still be computed."""
        return self.n_ids <= self._max_len

    def append(self, token_id: int) -> None:
        """Take one more id. FNV-1a over 64 bits chains its fingerprint to all before it."""
        before = int(self._fingerprints[self.n_ids - 1]) if self.n_ids else self._root
        self._ids[self.n_ids] = token_id
        self._fingerprints[self.n_ids] = ((before ^ (token_id + 1)) * 0x100000001B3 + 0xCBF29CE484222325) & _WORD
        self.n_ids += 1

    def extend_table(self, blocks: Int32s) -> None:
        """Blocks that follow the table's end."""
        self.table = np.concatenate([self.table, blocks])
        if has_duplicates(self.table.tolist()):
            raise Internal(f"row {self.row}: a block stands twice in its table {self.table.tolist()}")

    def check(self, memory: FakeMemory, position: int, n_tokens: int, *, is_sampled: bool) -> None:
        """Raise ``Internal`` unless this work is legal and the prefix it reads is this row's own."""
        end = position + n_tokens
        if n_tokens < 1 or position < 0 or end > min(self.n_ids, self._max_len):
            raise Internal(f"row {self.row}: work [{position}, {end}) of {self.n_ids} ids")
        if self.n_computed is not None and position != self.n_computed:
            raise Internal(f"row {self.row}: work starts at {position}, but {self.n_computed} tokens are computed")
        if is_sampled != (end == self.n_ids):
            raise Internal(f"row {self.row}: samples={is_sampled} for work [{position}, {end}) of {self.n_ids} ids")
        if end > len(self.table) * memory.block_size:
            raise Internal(f"row {self.row}: {len(self.table)} blocks do not cover work [{position}, {end})")
        wrong = np.flatnonzero(memory.read(self.table, position) != self._fingerprints[:position])
        if len(wrong):
            at = int(wrong[0])
            block = int(self.table[at // memory.block_size])
            raise Internal(f"row {self.row}: block {block} does not hold this row's position {at}")

    def compute(self, memory: FakeMemory, position: int, n_tokens: int) -> None:
        """Fill the KV memory at [position, position + n_tokens)."""
        memory.write(self.table, position, self._fingerprints[position : position + n_tokens])
        self.n_computed = position + n_tokens

    def score_prompt(self, position: int, n_tokens: int, result: RowResult) -> None:
        """Prompt log-probabilities: position p scores id p + 1 where that is still prompt."""
        k = self.wants.prompt_logprobs
        if k is None:
            return
        result.prompt_logprobs = [
            token_logprobs(pattern_logits(int(self._fingerprints[p]), self._vocab_size), int(self._ids[p + 1]), k)
            for p in range(position, min(position + n_tokens, self.n_prompt - 1))
        ]

    def draw(self, script: Script, mask: Mask | None, result: RowResult) -> None:
        """Draw one token and append it, or note this row's error."""
        answer = script(self.ids, self.n_prompt)
        logits = answer if isinstance(answer, np.ndarray) else forcing_logits(answer, self._vocab_size)
        if self.wants.hidden:
            result.hidden = pattern_logits(int(self._fingerprints[self.n_ids - 1]), _HIDDEN_SIZE)
        try:
            token_id = sample_row(
                logits,
                self.sampling,
                output_index=self.n_ids - self.n_prompt,
                prompt_ids=self._ids[: self.n_prompt],
                output_ids=self._ids[self.n_prompt : self.n_ids],
                mask=mask,
            )
        except Internal as error:
            self.error = result.error = error.message
            return
        result.tokens.append(token_id)
        if self.wants.logprobs is not None:
            result.logprobs = [*(result.logprobs or []), token_logprobs(logits, token_id, self.wants.logprobs)]
        self.append(token_id)
