"""The runners that the contract suite runs over. A new runner is added here, nowhere else.

Each factory gives a runner, not loaded yet, with at least: a vocabulary of 64, 4 rows, 100 positions, 64 batched
tokens, and blocks for 4 rows of 100 tokens. Its logits must depend on all ids, so that errors show.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.weights_in_memory import tiny_checkpoint

from tribar.runtime.fake.runner import FakeRunner
from tribar.runtime.fake.script import logits_script
from tribar.runtime.native.runner import NativeRunner
from tribar.runtime.runner import Runner
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.torch.runner import TorchRunner

_VOCAB = 97


_CONFIG = RunnerConfig(
    model_path=Path("unused"),
    n_blocks=140,
    max_model_len=100,
    max_rows=6,
    max_num_batched_tokens=128,
    block_size=4,
    n_threads=1,
)


def _fake(*, depth: int = 1, max_tokens_per_step: int = 1) -> Runner:
    return FakeRunner(
        _CONFIG, vocab_size=_VOCAB, script=logits_script(_VOCAB), depth=depth, max_tokens_per_step=max_tokens_per_step
    )


def _torch(*, depth: int) -> Runner:
    return TorchRunner(_CONFIG, open_checkpoint=tiny_checkpoint, depth=depth)


def _native(n_threads: int) -> Runner:
    config = replace(_CONFIG, block_size=16, n_threads=n_threads)
    return NativeRunner(config, open_checkpoint=partial(tiny_checkpoint, head_dim=16))


RUNNER_FACTORIES: dict[str, Callable[[], Runner]] = {
    "fake-depth-1": _fake,
    "fake-depth-2": lambda: _fake(depth=2),
    "fake-k-3": lambda: _fake(max_tokens_per_step=3),
    "torch-depth-1": lambda: _torch(depth=1),
    "torch-depth-2": lambda: _torch(depth=2),
    "native-1-thread": lambda: _native(1),
    "native-2-threads": lambda: _native(2),
}
