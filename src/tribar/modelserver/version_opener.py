"""Opens the instances of a version and puts a scheduler in front of them."""

import asyncio
from collections.abc import Sequence
from itertools import count

from tribar.modelserver.backends.base import Instance, InstanceSpec
from tribar.modelserver.loading import VersionPlan
from tribar.modelserver.response_cache import ResponseCache
from tribar.modelserver.scheduling.instance_groups import Placement, placements, resized, thread_shares
from tribar.modelserver.scheduling.instance_scheduler import InstanceScheduler
from tribar.modelserver.scheduling.policy import batching_policy
from tribar.modelserver.tracing import Traces
from tribar.modelserver.warmup import WarmupSample, warm_up, warmup_samples


class VersionOpener:
    """An ``OpenScheduler``. ``n_cores`` are split between the instances of each model.

    ``cache`` and ``traces`` are every model's.
    """

    def __init__(self, *, n_cores: int, cache: ResponseCache | None = None, traces: Traces | None = None) -> None:
        self._n_cores = n_cores
        self._cache = cache
        self._traces = traces
        self._generations = count()

    async def __call__(self, plan: VersionPlan) -> InstanceScheduler:
        """Raises a ``TribarError`` with the reason where one instance fails. None is left then, nor when cancelled."""
        samples = await asyncio.to_thread(warmup_samples, plan.config, plan.signature, plan.directory.parent)
        places = placements(plan.config)
        opener = _InstanceOpener(plan, places, thread_shares(self._n_cores, max(1, len(places))), samples)
        instances = await _all_or_none(opener, len(places))
        return InstanceScheduler(
            plan.signature,
            plan.version,
            batching_policy(plan.config),
            instances,
            opener,
            recorder=plan.recorder,
            preserves_order=plan.config.dynamic_batching.preserve_ordering,
            cache=self._cache if plan.config.response_cache.enable else None,
            generation=next(self._generations),
            traces=self._traces,
        )


class _InstanceOpener:
    """Opens any instance of one version, and warms it up."""

    def __init__(
        self, plan: VersionPlan, places: Sequence[Placement], n_threads: Sequence[int], samples: Sequence[WarmupSample]
    ) -> None:
        self._plan = plan
        self._places = places
        self._n_threads = n_threads
        self._samples = samples

    async def __call__(self, index: int) -> Instance:
        """The instance with this number, also beyond those configured. Raises a ``TribarError`` with the reason."""
        plan, place = self._plan, resized(self._places, index)
        spec = InstanceSpec(
            name=place.name,
            index=index,
            directory=plan.directory,
            version=plan.version,
            config=plan.config,
            signature=plan.signature,
            device=place.device,
            device_id=place.device_id,
            n_threads=self._n_threads[index % len(self._n_threads)],
            infer=plan.infer,
            control=plan.control,
        )
        instance = await plan.backend.open(spec)
        try:
            await warm_up(instance, self._samples, plan.recorder.clock)
        except BaseException:
            await instance.close()
            raise
        return instance


async def _all_or_none(opener: _InstanceOpener, n_instances: int) -> list[Instance]:
    tasks = [asyncio.create_task(opener(index)) for index in range(n_instances)]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        # the first failure is told; what the others have opened, or are about to, goes
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(result.close() for result in results if not isinstance(result, BaseException)))
        raise
