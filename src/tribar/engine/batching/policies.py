"""Which batching policies there are."""

from collections.abc import Callable

from tribar.engine.batching.base import BatchingPolicy
from tribar.engine.batching.continuous import Continuous
from tribar.engine.batching.dynamic import Dynamic
from tribar.engine.batching.static import Static
from tribar.engine.config import Batching, SchedulerConfig


def _dynamic(config: SchedulerConfig) -> BatchingPolicy:
    return Dynamic(config.dynamic_preferred_size, config.dynamic_delay_s)


POLICIES: dict[Batching, Callable[[SchedulerConfig], BatchingPolicy]] = {
    "continuous": lambda _: Continuous(),
    "dynamic": _dynamic,
    "static": lambda _: Static(),
}
