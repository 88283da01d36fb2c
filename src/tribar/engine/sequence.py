"""One request inside the engine: its ids, how far they are computed, what it holds and what it has cost."""

import sys
from array import array
from dataclasses import dataclass, field
from enum import IntEnum

from tribar.core.ids import BlockId, Row, Uid
from tribar.core.requests import FinishReason, Timing
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.engine.grammar.base import Constraint
from tribar.engine.kv.radix import Node
from tribar.wire.messages import Submit

NO_ROW = Row(-1)


class State(IntEnum):
    """Ordered: everything from ``FINISHED`` on has had its terminal output."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2
    ABORTED = 3
    FAILED = 4


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one request; the scheduler and its KV allocator are the only writers.

    With steps in flight the counts differ, always ``n_committed <= n_computed <= n_total``::

        ids known      | prompt ......... | generated .... |
        n_committed    KV of [0, n_committed) is in collected steps
        n_computed     KV of [0, n_computed) is in launched steps
        n_total        len(ids) plus one unknown token per launched step that samples

    ``max_total`` is where it ends by length. Where ``is_prompt_only``, what is drawn behind the prompt is dropped.
    ``order`` sorts sequences: lower priority number first, then arrival while it waits for its first start, then the
    order of starts.
    ``block_ids`` covers ``n_slots`` positions; ``n_in_flight`` counts launched steps that name the row.
    ``is_leaving``: the row is given up, blocks and row return when ``n_in_flight`` reaches 0. ``constraint`` is where
    the output stands in the request's grammar; None without a grammar, and until it is compiled.
    """

    uid: Uid
    ids: "array[int]"
    order: tuple[int, int]
    sampling: SamplingParams
    wants: Wants
    adapter: str
    max_total: int
    stop_ids: frozenset[int]
    n_public: int
    public_tag: bytes
    private_tag: bytes
    arrived_s: float
    tenant: str
    is_prompt_only: bool = False

    state: State = State.WAITING
    n_prompt: int = 0
    n_total: int = 0
    n_computed: int = 0
    n_committed: int = 0
    n_in_flight: int = 0
    row: Row = NO_ROW
    is_leaving: bool = False
    finish_reason: FinishReason | None = None
    stop_id: int | None = None
    constraint: Constraint | None = None

    # The KV allocator's part.
    block_ids: list[BlockId] = field(default_factory=list)
    n_slots: int = 0
    n_duplicates: int = 0
    insert_at: int = sys.maxsize
    node: Node | None = None
    hint: Node | None = None
    awaits: tuple[Node, bytes] | None = None
    computes: tuple[Node, bytes] | None = None

    # What it cost.
    n_cached: int = 0
    n_paid: int = 0
    n_preemptions: int = 0
    n_scored: int = 0
    started_s: float | None = None
    first_token_s: float | None = None

    @property
    def n_missing(self) -> int:
        """Tokens that are known but not computed."""
        return self.n_total - self.n_computed

    @property
    def is_finished(self) -> bool:
        """Whether its terminal output exists."""
        return self.state >= State.FINISHED

    @property
    def n_most(self) -> int:
        """The longest that the output may get."""
        return self.max_total - self.n_prompt

    @property
    def n_output(self) -> int:
        """Generated tokens, a stop token included."""
        return len(self.ids) - self.n_prompt

    @property
    def awaits_token(self) -> bool:
        """Whether nothing may be planned because the mask of the next token depends on one that is still unknown."""
        return self.constraint is not None and self.n_total > len(self.ids)

    @property
    def may_match(self) -> bool:
        """Whether cached blocks may stand in for computing: not while log-probabilities of the prompt are owed."""
        return self.wants.prompt_logprobs is None or self.n_scored >= self.n_prompt

    def block_key(self, index: int, block_size: int) -> bytes:
        """Key of full block ``index`` in the prefix cache: tag, then the block's ids as int32.

        The ids have a fixed size at the end, so different (tag, ids) never give the same bytes.
        """
        start = index * block_size
        end = start + block_size
        tag = self.public_tag if end <= self.n_public else self.private_tag
        return tag + self.ids[start:end].tobytes()

    def accept(self, tokens: list[int]) -> int:
        """Append drawn tokens up to the one that ends the sequence; sets ``finish_reason`` and ``stop_id``.

        Returns how many of them the client sees: a stop token is counted as output, but not shown. Where only the
        prompt was to be computed, what was drawn behind it is no output at all.
        """
        ids, constraint = self.ids, self.constraint
        if self.is_prompt_only:
            self.finish_reason = FinishReason.LENGTH
            return 0
        for n_before, token in enumerate(tokens):
            ids.append(token)
            if token in self.stop_ids:
                self.finish_reason, self.stop_id = FinishReason.STOP, token
                return n_before
            if constraint is not None:
                constraint.accept(token)
                if constraint.is_over:
                    self.finish_reason = FinishReason.STOP
                    return n_before + 1
            if len(ids) >= self.max_total:
                self.finish_reason = FinishReason.LENGTH
                return n_before + 1
        return len(tokens)

    def advance(self, end: int, n_gained: int) -> None:
        """A step that ended at position ``end`` drew ``n_gained`` tokens: the KV of all but the last is computed.

        Comes after ``accept``; tokens drawn beyond the end are not among the ids and so never count as committed.
        """
        n_committed = end + n_gained - 1
        self.n_total += n_gained - 1
        self.n_computed = max(self.n_computed, n_committed)
        self.n_committed = min(n_committed, len(self.ids) - 1)

    def timing(self, now_s: float) -> Timing:
        """Where the time until ``now_s`` went."""
        started_s = now_s if self.started_s is None else self.started_s
        first_s = now_s if self.first_token_s is None else self.first_token_s
        return Timing(started_s - self.arrived_s, first_s - started_s, now_s - first_s, self.n_preemptions)


def from_submit(submit: Submit, arrival: int, now_s: float, max_model_len: int) -> Sequence:
    """A waiting sequence. ``arrival`` grows with every call and breaks ties of priority.

    The adapter is part of both cache tags, whatever the namespace says: the same tokens have other KV under it. Its
    length comes first, so that no adapter and namespace together look like another pair.
    """
    adapter = submit.adapter.encode()
    adapter_tag = len(adapter).to_bytes(4, "big") + adapter
    ids = array("i", submit.ids)
    if sys.byteorder == "big":
        ids.byteswap()
    n_prompt = len(ids)
    return Sequence(
        uid=submit.uid,
        ids=ids,
        order=(submit.priority, arrival),
        sampling=submit.sampling,
        wants=submit.wants,
        adapter=submit.adapter,
        max_total=min(n_prompt + max(1, submit.max_tokens), max_model_len),
        is_prompt_only=submit.max_tokens == 0,
        stop_ids=frozenset(submit.stop_ids),
        n_public=submit.public_prefix_tokens,
        public_tag=b"public" + adapter_tag,
        private_tag=b"private" + adapter_tag + submit.namespace,
        arrived_s=now_s,
        tenant=submit.tenant,
        n_prompt=n_prompt,
        n_total=n_prompt,
    )
