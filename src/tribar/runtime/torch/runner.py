"""The PyTorch runner: any described model, on a CPU or a CUDA device, behind ``tribar.runtime.runner.Runner``."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tribar.core.errors import Internal, InvalidRequest, Unavailable
from tribar.core.ids import Row
from tribar.runtime.architectures.base import ModelDescription
from tribar.runtime.architectures.checkpoint import Checkpoint, open_checkpoint
from tribar.runtime.runner import Int32s, RunnerInfo, StepPlan, StepResult, Ticket
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.torch.device import Placement, place
from tribar.runtime.torch.kv_cache import KvCache
from tribar.runtime.torch.layout import Item, arrange, lay_out
from tribar.runtime.torch.logprobs import Scored, join, score
from tribar.runtime.torch.model import Model
from tribar.runtime.torch.rows import Rows
from tribar.runtime.torch.sampler import Mask, Sampled
from tribar.runtime.torch.step import Step
from tribar.runtime.torch.transfer import upload
from tribar.runtime.torch.weights import load_weights

CAPABILITIES = frozenset({"logprobs", "prompt_logprobs", "hidden", "masks"})

_HEAD_ROWS = 128
"""Prompt positions that go through the LM head at once when their log-probabilities are wanted."""


class _Loaded:
    """Everything that exists between ``load`` and ``close``."""

    def __init__(self, checkpoint: Checkpoint, config: RunnerConfig, placement: Placement) -> None:
        self.description: ModelDescription = checkpoint.description
        self.model = Model(self.description, load_weights(checkpoint, placement))
        self.cache = KvCache(self.description, config.n_blocks, config.block_size, placement)
        self.rows = Rows(
            max_rows=config.max_rows,
            max_model_len=config.max_model_len,
            block_size=config.block_size,
            sink_block=self.cache.sink_block,
            vocab_size=self.description.vocab_size,
            device=placement.device,
        )


class TorchRunner:
    """See the contract. ``depth`` None takes the device's: 1 on a CPU, 2 on CUDA.

    ``sample`` of a step must precede the ``launch`` of the next, whose input it draws. Between ``launch`` and
    ``collect`` the host never waits for the device.
    """

    def __init__(
        self,
        config: RunnerConfig,
        *,
        open_checkpoint: Callable[[Path, int | None], Checkpoint] = open_checkpoint,
        depth: int | None = None,
    ) -> None:
        self._config = config
        self._open_checkpoint = open_checkpoint
        self._placement = place(config)
        self._depth = depth or self._placement.depth
        self._loaded: _Loaded | None = None
        self._steps: OrderedDict[Ticket, Step] = OrderedDict()
        self._next_ticket = 0

    def load(self) -> RunnerInfo:
        """See the contract. Also raises ``InvalidRequest`` where max_model_len is beyond the model's context, and
        ``Unavailable`` where the device's memory does not suffice.
        """
        config = self._config
        if config.n_threads:
            torch.set_num_threads(config.n_threads)
        checkpoint = self._open_checkpoint(config.model_path, config.max_model_len)
        try:
            context = checkpoint.description.context_length
            if config.max_model_len > context:
                message = f"max_model_len {config.max_model_len} is beyond the model's context of {context}"
                raise InvalidRequest(message, param="max_model_len")
            self._loaded = _Loaded(checkpoint, config, self._placement)
        except (torch.OutOfMemoryError, MemoryError) as error:
            message = f"{config.device} has too little memory for the weights and {config.n_blocks} KV blocks"
            raise Unavailable(message) from error
        finally:
            checkpoint.close()
        return RunnerInfo(
            n_blocks=config.n_blocks,
            block_size=config.block_size,
            max_rows=config.max_rows,
            vocab_size=checkpoint.description.vocab_size,
            max_model_len=config.max_model_len,
            depth=self._depth,
            capabilities=CAPABILITIES,
        )

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> Ticket:
        """See the contract. Raises ``Internal`` for an impossible plan and ``Unsupported`` for an adapter."""
        loaded = self._require()
        if len(self._steps) >= self._depth:
            raise Internal(f"{len(self._steps)} steps are in flight, the depth is {self._depth}")
        if any(not step.is_drawn for step in self._steps.values()):
            raise Internal("the step before was launched but not sampled")
        loaded.rows.apply(plan)
        items, n_padded = arrange(plan.work, loaded.rows, self._config.block_size)
        step = _new_step(plan.step, items, loaded.rows)
        if items:
            batch = lay_out(items, n_padded, loaded.rows, loaded.cache)
            self._compute(step, loaded.model.forward(batch, loaded.cache))
        for sampled in step.sampled:
            loaded.rows[sampled.row].n_ids += 1
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        self._steps[ticket] = step
        return ticket

    @torch.inference_mode()
    def sample(self, ticket: Ticket, masks: dict[Row, Mask] | None = None) -> None:
        """See the contract."""
        loaded, step = self._require(), self._step(ticket)
        if step.is_drawn:
            raise Internal(f"ticket {ticket} was sampled already")
        tokens = step.draw(masks or {}, loaded.rows.ids)
        if tokens is not None:
            sampled = step.sampled
            loaded.rows.append_tokens([row.row for row in sampled], [row.n_ids for row in sampled], tokens)

    def collect(self, ticket: Ticket) -> StepResult:
        """See the contract."""
        step = self._step(ticket)
        if ticket != next(iter(self._steps)) or not step.is_drawn:
            raise Internal(f"ticket {ticket} was collected out of order or not sampled")
        del self._steps[ticket]
        return step.result()

    @torch.inference_mode()
    def copy_blocks(self, source: Int32s, target: Int32s) -> None:
        """See the contract."""
        self._require().cache.copy(source, target)

    @torch.inference_mode()
    def export_blocks(self, blocks: Int32s) -> npt.NDArray[Any]:
        """See the contract."""
        return self._require().cache.export(blocks)

    @torch.inference_mode()
    def import_blocks(self, blocks: Int32s, contents: npt.NDArray[Any]) -> None:
        """See the contract."""
        self._require().cache.load(blocks, contents)

    def close(self) -> None:
        """See the contract."""
        self._loaded = None
        self._steps.clear()

    def _require(self) -> _Loaded:
        if self._loaded is None:
            raise Internal("the runner is not loaded")
        return self._loaded

    def _step(self, ticket: Ticket) -> Step:
        if ticket not in self._steps:
            raise Internal(f"ticket {ticket} is not in flight")
        return self._steps[ticket]

    def _compute(self, step: Step, hidden: Tensor) -> None:
        """Only the rows that draw, and scored prompt positions, go through the LM head."""
        model, device = self._require().model, hidden.device
        last = [item.start + item.n_tokens - 1 for item in step.items if item.is_sampled]
        if last:
            step.normed = model.final_norm(hidden[upload(np.array(last, dtype=np.int64), device)])
            step.logits = model.logits(step.normed)
        for i, (item, state) in enumerate(zip(step.items, step.states, strict=True)):
            if state.wants.prompt_logprobs is not None:
                scored = self._score_prompt(item, hidden, state.wants.prompt_logprobs)
                if scored is not None:
                    step.prompt_scores[i] = scored

    def _score_prompt(self, item: Item, hidden: Tensor, k: int) -> Scored | None:
        """Position p scores the prompt token at p + 1, where there is one."""
        loaded = self._require()
        n_scored = min(item.end, loaded.rows[item.row].n_prompt - 1) - item.position
        parts = []
        for first in range(0, n_scored, _HEAD_ROWS):
            n = min(_HEAD_ROWS, n_scored - first)
            flat, target = item.start + first, item.position + first + 1
            logits = loaded.model.logits(loaded.model.final_norm(hidden[flat : flat + n]))
            # a copy: the row may have another owner before this step is collected
            targets = loaded.rows.ids[item.row, target : target + n].clone()
            parts.append(score(logits, targets, k))
        return join(parts) if parts else None


def _new_step(number: int, items: list[Item], rows: Rows) -> Step:
    states = [rows[item.row] for item in items]
    sampled = [
        Sampled(item.row, state.n_prompt, state.n_ids, state.sampling)
        for item, state in zip(items, states, strict=True)
        if item.is_sampled
    ]
    return Step(number, items, states, sampled)
