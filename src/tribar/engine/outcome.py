"""From what a row gained to what its client is told. Pure translations; the scheduler decides what follows."""

import msgspec

from tribar.core.errors import TribarError
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason, FinishReason
from tribar.core.sampling.params import TokenLogprobs
from tribar.core.sampling.reference import NOTHING_ALLOWED
from tribar.engine.sequence import Sequence
from tribar.runtime.runner import RowResult
from tribar.wire.messages import Aborted, Failed, Finished, Output


def output_of(sequence: Sequence, position: int, result: RowResult, n_visible: int, now_s: float) -> Output | None:
    """What the client learns from this step, or None for nothing.

    ``n_visible`` of the result's tokens are shown: neither the stop token nor what was drawn beyond the end.
    """
    finish = None if sequence.finish_reason is None else finished(sequence, sequence.finish_reason, now_s)
    if finish is not None and finish.stop_id is not None and result.logprobs is not None:
        finish = msgspec.structs.replace(finish, stop_logprobs=result.logprobs[n_visible])
    prompt_logprobs = None
    if not sequence.may_match:
        prompt_logprobs = _prompt_logprobs(sequence, position, result.prompt_logprobs or [])
    if n_visible == 0 and finish is None and prompt_logprobs is None:
        return None
    logprobs = None if result.logprobs is None else result.logprobs[:n_visible]
    return Output(sequence.uid, result.tokens[:n_visible], logprobs, prompt_logprobs, finish)


def finished(sequence: Sequence, reason: FinishReason, now_s: float, n_output: int | None = None) -> Finished:
    """The terminal of a sequence that ended by itself.

    ``n_output`` counts the stop token, as Hugging Face's and vLLM's completion counts do, though it is not shown.
    A given ``n_output`` replaces the count, where a stop string ended the text before the last token.
    """
    n = sequence.n_output if n_output is None else n_output
    return Finished(reason, sequence.n_prompt, n, sequence.n_cached, sequence.timing(now_s), sequence.stop_id)


def aborted(sequence: Sequence, reason: AbortReason, n_output: int, now_s: float) -> Output:
    """The terminal of a sequence that was ended from outside, with no further tokens."""
    if reason is AbortReason.STOP_STRING:
        return Output(sequence.uid, [], terminal=finished(sequence, FinishReason.STOP, now_s, n_output))
    terminal = Aborted(reason, sequence.n_prompt, sequence.n_output, sequence.timing(now_s))
    return Output(sequence.uid, [], terminal=terminal)


def failed(sequence: Sequence, message: str) -> Output:
    """The terminal of a sequence whose row alone went wrong.

    Where its grammar did, that is the reason to tell. Where it may draw nothing although its grammar can go on, it is
    its ``logit_bias`` that forbids the rest.
    """
    constraint = sequence.constraint
    if constraint is not None and constraint.error:
        reason = f"{constraint.param}: {constraint.error}"
        kind = "Internal" if constraint.is_broken else "InvalidRequest"
        return Output(sequence.uid, [], terminal=Failed(kind, reason, param=constraint.param))
    if message == NOTHING_ALLOWED:
        return Output(sequence.uid, [], terminal=Failed("InvalidRequest", message, param="logit_bias"))
    return Output(sequence.uid, [], terminal=Failed("Internal", message))


def refused(uid: Uid, error: TribarError) -> Output:
    """The terminal of a request that never ran."""
    return Output(uid, [], terminal=Failed(type(error).__name__, error.message, error.retry_after_s, error.param))


def _prompt_logprobs(
    sequence: Sequence, position: int, scored: list[TokenLogprobs]
) -> list[TokenLogprobs | None] | None:
    """The entries not delivered yet; ``scored`` starts with prompt token ``position + 1``.

    Entry 0 of the whole list is None, since nothing precedes the first token. After a preemption the runner scores
    the prompt again, and what the client has already is left out.
    """
    first = sequence.n_scored == 0
    entries: list[TokenLogprobs | None] = [None] if first else []
    entries += scored[max(sequence.n_scored, 1) - (position + 1) :]
    sequence.n_scored += len(entries)
    return entries or None
