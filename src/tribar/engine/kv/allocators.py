"""Which KV allocators there are, and how the configuration chooses one."""

from tribar.engine.config import SchedulerConfig
from tribar.engine.kv.base import KvAllocator
from tribar.engine.kv.contiguous import ContiguousKv
from tribar.engine.kv.paged import PagedKv
from tribar.engine.kv.prefix_cached import PrefixCachedKv
from tribar.runtime.runner import RunnerInfo


def create_allocator(config: SchedulerConfig, info: RunnerInfo, max_model_len: int) -> KvAllocator:
    """The allocator for ``config``; sequences are at most ``max_model_len`` tokens long."""
    if config.allocator == "contiguous":
        return ContiguousKv(info.n_blocks, info.block_size, max_model_len)
    if config.prefix_caching:
        return PrefixCachedKv(info.n_blocks, info.block_size)
    return PagedKv(info.n_blocks, info.block_size)
