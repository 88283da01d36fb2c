"""Which runners there are, and what one is made from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tribar.core.errors import InvalidRequest, Unsupported
from tribar.runtime.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """Resolved settings of a runner. ``n_blocks`` includes the null block 0.

    ``weights`` and ``kv_cache_dtype`` "auto" leave the choice to the runner. ``n_threads`` 0 means all cores allowed.
    """

    model_path: Path
    n_blocks: int
    max_model_len: int
    max_rows: int = 64
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    device: str = "cpu"
    weights: str = "auto"
    kv_cache_dtype: str = "auto"
    n_threads: int = 0


def _torch(config: RunnerConfig) -> Runner:
    try:
        from tribar.runtime.torch.runner import TorchRunner
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Unsupported("the torch runner needs PyTorch: pip install 'tribar[torch]'") from error
    return TorchRunner(config)


def _fake(config: RunnerConfig) -> Runner:
    from tribar.runtime.fake.model import load_fake_model

    return load_fake_model(config.model_path).runner(config)


def _native(config: RunnerConfig) -> Runner:
    try:
        from tribar.runtime.native.runner import NativeRunner
    except ImportError as error:
        raise Unsupported(
            f"the native runner was not built here ({error}): install with a C++20 compiler, or take --runner torch"
        ) from error
    return NativeRunner(config)


RUNNERS: dict[str, Callable[[RunnerConfig], Runner]] = {"native": _native, "torch": _torch, "fake": _fake}


def create_runner(kind: str, config: RunnerConfig) -> Runner:
    """A runner of ``kind``, not loaded yet. Raises ``InvalidRequest`` for an unknown kind."""
    factory = RUNNERS.get(kind)
    if factory is None:
        raise InvalidRequest(f"unknown runner {kind!r}: choose one of {', '.join(sorted(RUNNERS))}", param="runner")
    return factory(config)
