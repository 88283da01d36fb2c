"""What an engine still has to tell one client: merged, so that its size does not depend on how slow the client is."""

from collections import deque
from collections.abc import Sequence

from tribar.core.ids import Uid
from tribar.core.sampling.params import TokenLogprobs
from tribar.wire.messages import Output, Ready, Stats, StepOutput, ToClient

FRAME_ENTRIES = 128 * 1024
"""Entries (see ``weight``) after which a StepOutput is closed: a frame of tens of MB at the very most."""

MAX_PENDING_ENTRIES = 8 * 2**20
"""Entries a client may owe us the reading of. Running requests never get there; a client that keeps asking and
never reads does, and is disconnected."""


def weight(output: Output) -> int:
    """Size of an output in entries: one per output, token and reported log-probability."""
    return 1 + len(output.ids) + _n_logprobs(output.logprobs) + _n_logprobs(output.prompt_logprobs)


def _n_logprobs(logprobs: Sequence[TokenLogprobs | None] | None) -> int:
    # All tokens of a request report equally many alternatives; only a prompt's first entry is None.
    if not logprobs:
        return 0
    last = logprobs[-1]
    return len(logprobs) * (1 + len(last.top_ids) if last is not None else 1)


def merge(into: Output, more: Output) -> None:
    """Append ``more`` (of the same uid, later in time, given away) to ``into``, which must not have ended."""
    into.ids += more.ids
    if into.logprobs is None:
        into.logprobs = more.logprobs
    elif more.logprobs is not None:
        into.logprobs += more.logprobs
    if into.prompt_logprobs is None:
        into.prompt_logprobs = more.prompt_logprobs
    elif more.prompt_logprobs is not None:
        into.prompt_logprobs += more.prompt_logprobs
    into.terminal = more.terminal


def _cut(output: Output, n_tokens: int) -> Output:
    """Take the first ``n_tokens`` prompt log-probabilities or, when those fit, ids, out of ``output``."""
    head = Output(output.uid, [])
    if output.prompt_logprobs is not None:
        head.prompt_logprobs = output.prompt_logprobs[:n_tokens]
        output.prompt_logprobs = output.prompt_logprobs[n_tokens:] or None
        if output.prompt_logprobs is not None:
            return head
    head.ids, output.ids = output.ids[:n_tokens], output.ids[n_tokens:]
    if output.logprobs is not None:
        head.logprobs, output.logprobs = output.logprobs[:n_tokens], output.logprobs[n_tokens:]
    return head


class Outbox:
    """Pending messages of one client. Not thread-safe.

    StepOutputs merge by uid: ids are concatenated, the terminal comes last, so nothing is lost and memory is bounded
    by admitted tokens. The latest Ready and the latest Stats replace older ones.
    """

    def __init__(self) -> None:
        self._outputs: deque[Output] = deque()
        self._open: dict[Uid, Output] = {}
        self._ready: Ready | None = None
        self._stats: Stats | None = None
        self._n_entries = 0

    def __bool__(self) -> bool:
        return bool(self._outputs) or self._ready is not None or self._stats is not None

    @property
    def n_outputs(self) -> int:
        """How many requests have something pending (a uid used twice counts twice)."""
        return len(self._outputs)

    @property
    def is_full(self) -> bool:
        """Whether more is pending than any well-behaved client leaves unread."""
        return self._n_entries > MAX_PENDING_ENTRIES

    def put(self, message: ToClient) -> None:
        """Add a message; the outputs in it belong to the outbox from here on."""
        match message:
            case Ready():
                self._ready = message
            case Stats():
                self._stats = message
            case StepOutput():
                for output in message.outputs:
                    self._put_output(output)

    def _put_output(self, output: Output) -> None:
        self._n_entries += weight(output)
        pending = self._open.get(output.uid)
        if pending is None:
            self._outputs.append(output)
            if output.terminal is None:
                self._open[output.uid] = output
            return
        merge(pending, output)
        self._n_entries -= 1
        if output.terminal is not None:
            del self._open[output.uid]

    def take(self) -> ToClient | None:
        """Remove and return the next message to write (Ready, then outputs, then Stats); None when empty."""
        message: ToClient | None
        if self._ready is not None:
            message, self._ready = self._ready, None
            return message
        if self._outputs:
            return StepOutput(self._take_outputs())
        message, self._stats = self._stats, None
        return message

    def _take_outputs(self) -> list[Output]:
        taken: list[Output] = []
        budget = FRAME_ENTRIES
        while self._outputs and budget > 0:
            first = self._outputs[0]
            size = weight(first)
            if size > FRAME_ENTRIES:
                if taken:
                    break
                n_tokens = max(len(first.ids), len(first.prompt_logprobs or ()))
                taken.append(_cut(first, max(1, n_tokens * FRAME_ENTRIES // size)))
                self._n_entries -= size - weight(first)
                break
            budget -= size
            self._n_entries -= size
            taken.append(self._outputs.popleft())
            self._open.pop(first.uid, None)
        return taken
