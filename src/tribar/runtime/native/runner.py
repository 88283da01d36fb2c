"""The native CPU runner: C++ kernels behind ``tribar.runtime.runner.Runner``. One C++ call per step, GIL released."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tribar.core.errors import Internal, InvalidRequest, Unavailable, Unsupported
from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams, TokenLogprobs
from tribar.runtime.architectures.checkpoint import Checkpoint, open_checkpoint
from tribar.runtime.native._native import running
from tribar.runtime.native._native.sampling import SamplingSpec
from tribar.runtime.native.loading import KV_TYPES, WEIGHTS, load_weights
from tribar.runtime.runner import AddRow, Int32s, RowResult, RunnerInfo, StepPlan, StepResult, Ticket
from tribar.runtime.runners import RunnerConfig

BLOCK_SIZE = 16
"""The kernels' own (native/src/kv.h)."""

CAPABILITIES = frozenset({"logprobs", "prompt_logprobs", "hidden", "masks"})

Mask = npt.NDArray[np.uint32]
Score = tuple[int, int, float, list[int], list[float]]
"""Entry of the work, id, log-probability, top ids, their log-probabilities."""


class NativeRunner:
    """See the contract. Depth 1: ``launch`` takes the plan, ``sample`` computes and draws, ``collect`` hands over."""

    def __init__(
        self,
        config: RunnerConfig,
        *,
        level: str = "",
        open_checkpoint: Callable[[Path, int | None], Checkpoint] = open_checkpoint,
    ) -> None:
        self._config = config
        self._level = level
        self._open_checkpoint = open_checkpoint
        self._native: running.Runner | None = None
        self._vocab_size = 0
        self._plan: StepPlan | None = None
        self._result: StepResult | None = None
        self._n_launched = 0

    def load(self) -> RunnerInfo:
        """See the contract. Also raises ``InvalidRequest`` for settings it cannot keep, ``Unavailable`` for memory."""
        config = self._config
        _check(config)
        checkpoint = self._open_checkpoint(config.model_path, config.max_model_len)
        try:
            context = checkpoint.description.context_length
            if config.max_model_len > context:
                message = f"max_model_len {config.max_model_len} is beyond the model's context of {context}"
                raise InvalidRequest(message, param="max_model_len")
            native = _create(self._level, config)
            load_weights(native, checkpoint, config.max_model_len, config.weights)
            native.start(KV_TYPES[config.kv_cache_dtype], config.n_blocks)
        except MemoryError as error:
            raise Unavailable(f"too little memory for the weights and {config.n_blocks} KV blocks") from error
        finally:
            checkpoint.close()
        self._native = native
        self._vocab_size = checkpoint.description.vocab_size
        return RunnerInfo(
            n_blocks=config.n_blocks,
            block_size=BLOCK_SIZE,
            max_rows=config.max_rows,
            vocab_size=self._vocab_size,
            max_model_len=config.max_model_len,
            capabilities=CAPABILITIES,
        )

    def launch(self, plan: StepPlan) -> Ticket:
        """See the contract. Raises ``Internal`` for an impossible plan and ``Unsupported`` for an adapter."""
        native = self._require()
        if self._plan is not None or self._result is not None:
            raise Internal("a step is in flight, the depth is 1")
        try:
            for row in plan.drop:
                native.drop(row)
            for added in plan.add:
                self._add(added)
            for row, blocks in plan.append:
                native.append(row, blocks)
        except ValueError as error:
            raise Internal(f"step {plan.step}: {error}") from error
        self._plan = plan
        self._n_launched += 1
        return Ticket(self._n_launched)

    def sample(self, ticket: Ticket, masks: dict[Row, Mask] | None = None) -> None:
        """See the contract."""
        plan = self._plan
        if plan is None or ticket != self._n_launched:
            raise Internal(f"ticket {ticket} is not in flight, or was sampled already")
        work = plan.work
        rows = work.rows.tolist()
        per_entry = [masks.get(Row(row)) for row in rows] if masks else []
        try:
            outcome = self._require().step(work.rows, work.positions, work.n_tokens, work.samples, per_entry)
        except ValueError as error:
            raise Internal(f"step {plan.step}: {error}") from error
        self._plan = None
        self._result = StepResult(plan.step, _row_results(rows, *outcome))

    def collect(self, ticket: Ticket) -> StepResult:
        """See the contract."""
        result = self._result
        if result is None or ticket != self._n_launched:
            raise Internal(f"ticket {ticket} was collected out of order or not sampled")
        self._result = None
        return result

    def logits(self, ids: Int32s) -> npt.NDArray[np.float32]:
        """The logits of every position of a text, [len(ids), vocab]: to judge accuracy, while no row is in use."""
        out = np.empty((len(ids), self._vocab_size), dtype=np.float32)
        self._require().logits(ids, out)
        return out

    @property
    def packed_bytes(self) -> int:
        """Bytes of all matrices in memory: what a decode step reads where the head is tied."""
        return self._require().packed_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes of a KV block, over all layers."""
        return self._require().block_bytes

    def copy_blocks(self, source: Int32s, target: Int32s) -> None:
        """See the contract."""
        self.import_blocks(target, self.export_blocks(source))

    def export_blocks(self, blocks: Int32s) -> npt.NDArray[Any]:
        """See the contract."""
        native = self._require()
        contents = np.empty((len(blocks), native.block_bytes), dtype=np.uint8)
        for i, block in enumerate(blocks.tolist()):
            native.export_block(block, contents[i])
        return contents

    def import_blocks(self, blocks: Int32s, contents: npt.NDArray[Any]) -> None:
        """See the contract."""
        native = self._require()
        for i, block in enumerate(blocks.tolist()):
            native.import_block(block, contents[i])

    def close(self) -> None:
        """See the contract."""
        self._native = None
        self._plan = self._result = None

    def _require(self) -> running.Runner:
        if self._native is None:
            raise Internal("the runner is not loaded")
        return self._native

    def _add(self, added: AddRow) -> None:
        if added.adapter:
            raise Unsupported(f"the native runner has no adapters, asked for {added.adapter!r}")
        wants = added.wants
        self._require().add(
            added.row,
            added.ids,
            added.n_prompt,
            _spec(added.sampling),
            -1 if wants.logprobs is None else wants.logprobs,
            -1 if wants.prompt_logprobs is None else wants.prompt_logprobs,
            wants.hidden,
        )


def _create(level: str, config: RunnerConfig) -> running.Runner:
    """The C++ runner, empty. Raises ``InvalidRequest`` for a CPU level that is unknown or not this CPU's."""
    try:
        return running.Runner(level, config.n_threads or _usable_cores(), config.max_rows, config.max_model_len)
    except ValueError as error:  # std::invalid_argument
        raise InvalidRequest(str(error), param="TRIBAR_CPU_LEVEL") from error


def _usable_cores() -> int:
    """Cores that this process may run on; all of them where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check(config: RunnerConfig) -> None:
    choices = {"weights": (config.weights, WEIGHTS), "kv_cache_dtype": (config.kv_cache_dtype, KV_TYPES)}
    for name, (value, known) in choices.items():
        if value not in known:
            raise InvalidRequest(f"the native runner has no {name} {value!r}: choose {', '.join(known)}", param=name)
    if config.device != "cpu":
        raise InvalidRequest(f"the native runner computes on the cpu, not on {config.device!r}", param="device")
    if config.block_size != BLOCK_SIZE:
        message = f"the native runner has blocks of {BLOCK_SIZE}, not {config.block_size}"
        raise InvalidRequest(message, param="block_size")


def _spec(sampling: SamplingParams) -> SamplingSpec:
    if sampling.seed is None and sampling.temperature > 0:
        raise Internal("a row that draws needs a seed, but its sampling parameters have none")
    return SamplingSpec(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=list(sampling.logit_bias),
        min_tokens=sampling.min_tokens,
        suppressed=list(sampling.suppressed),
        seed=sampling.seed or 0,
    )


def _row_results(
    rows: list[int],
    tokens: list[int],
    statuses: list[int],
    token_scores: list[Score],
    prompt_scores: list[Score],
    hidden: list[tuple[int, bytes]],
) -> list[RowResult]:
    results = [
        RowResult(Row(row), [] if token < 0 else [token], error=running.status_message(status) if status else "")
        for row, token, status in zip(rows, tokens, statuses, strict=True)
    ]
    for score in token_scores:
        results[score[0]].logprobs = [_logprobs(score)] if results[score[0]].tokens else []
    for score in prompt_scores:
        result = results[score[0]]
        result.prompt_logprobs = [*(result.prompt_logprobs or ()), _logprobs(score)]
    for i, values in hidden:
        results[i].hidden = np.frombuffer(values, dtype=np.float32)
    return results


def _logprobs(score: Score) -> TokenLogprobs:
    _, token_id, logprob, top_ids, top_logprobs = score
    return TokenLogprobs(token_id, logprob, tuple(top_ids), tuple(top_logprobs))
