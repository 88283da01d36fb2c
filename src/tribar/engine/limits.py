"""What a scheduler can take at all, and the check of a Submit against it."""

from dataclasses import dataclass

import numpy as np

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.engine.config import SchedulerConfig
from tribar.engine.grammar.wire_form import from_wire
from tribar.engine.sequence import Sequence
from tribar.runtime.runner import RunnerInfo
from tribar.wire.messages import Submit


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_model_len``: the longest sequence, prompt and output together. ``max_running``: sequences at a time.

    ``max_model_len`` never exceeds what the KV pool holds, so a sequence that was let in can always run to its end.
    ``lookahead`` is how many positions past its last token a row's block table covers (k - 1). ``capabilities`` are
    the runner's.
    """

    max_model_len: int
    max_running: int
    vocab_size: int
    pool_tokens: int
    lookahead: int
    capabilities: frozenset[str]

    @classmethod
    def of(cls, config: SchedulerConfig, info: RunnerInfo) -> "Limits":
        """What ``config`` and the runner allow together. Raises ``InvalidRequest`` if nothing could ever run."""
        pool_tokens = (info.n_blocks - 1) * info.block_size
        max_model_len = min(config.max_model_len, info.max_model_len, pool_tokens)
        max_running = min(config.max_num_seqs, info.max_rows, config.max_num_batched_tokens)
        if max_running < 1:
            raise InvalidRequest("max_num_seqs, max_num_batched_tokens and the runner's rows must all be at least 1")
        if max_model_len < 2:
            raise InvalidRequest("max_model_len and the KV pool must hold at least 2 tokens", param="max_model_len")
        if info.max_tokens_per_step > 1 and info.depth > 1:
            raise InvalidRequest("a runner that gains several tokens per step must have depth 1")
        lookahead = info.max_tokens_per_step - 1
        return cls(
            max_model_len=max_model_len,
            max_running=max_running,
            vocab_size=info.vocab_size,
            pool_tokens=pool_tokens,
            lookahead=lookahead,
            capabilities=info.capabilities,
        )

    def n_covered(self, sequence: Sequence) -> int:
        """How many positions the block table of ``sequence`` must cover for its next step."""
        return min(sequence.n_total + self.lookahead, self.max_model_len)

    def check(self, submit: Submit) -> None:
        """Raise ``InvalidRequest`` for a request that can never run, ``Unsupported`` for a wish nobody here grants."""
        self._check_capabilities(submit)
        if not submit.ids or len(submit.ids) % 4:
            raise InvalidRequest("the prompt must have at least one token (int32 ids)", param="prompt")
        ids = np.frombuffer(submit.ids, dtype="<i4")
        if len(ids) >= self.max_model_len:
            raise InvalidRequest(self._too_long(len(ids)), param="prompt", code="context_length_exceeded")
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            raise InvalidRequest(f"token ids must lie in [0, {self.vocab_size})", param="prompt")
        if submit.max_tokens < 0:
            raise InvalidRequest(f"max_tokens must be at least 0, not {submit.max_tokens}", param="max_tokens")

    def _check_capabilities(self, submit: Submit) -> None:
        """A runner that met one of these would fail its whole step, or the wish would be forgotten on the way."""
        if submit.grammar and "masks" not in self.capabilities:
            param = from_wire(submit.grammar).param
            raise Unsupported(f"{param}: this model's runner cannot follow grammars: leave it out", param=param)
        if submit.wants.hidden:
            raise Unsupported("hidden states do not leave the engine", param="hidden")
        wishes = {
            "adapters": bool(submit.adapter),
            "logprobs": submit.wants.logprobs is not None,
            "prompt_logprobs": submit.wants.prompt_logprobs is not None,
        }
        for name, is_wanted in wishes.items():
            if is_wanted and name not in self.capabilities:
                raise Unsupported(f"this model's runner has no {name}: leave them out", param=name)

    def _too_long(self, n_prompt: int) -> str:
        message = f"the prompt has {n_prompt} tokens; with at least one token of output the limit is "
        message += f"{self.max_model_len} tokens"
        if self.max_model_len == self.pool_tokens:
            message += " (all that the KV pool holds)"
        return message
