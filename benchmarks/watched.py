"""One plan of load, and what the server's processes used while it was carried out."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.load import Plan, Result, start
from benchmarks.processes import CpuWatch, rss_bytes

SAMPLE_S = 0.5

LIMIT = 0.9
"""From this share of its core on a load generator measures itself."""


@dataclass(frozen=True, slots=True)
class Watched:
    """By process name: ``cpu`` as shares of one core, ``rss`` in bytes, one sample every ``SAMPLE_S``."""

    result: Result
    cpu: Mapping[str, float]
    rss: Mapping[str, Sequence[int]]

    def cores(self) -> str:
        """Who used how much of a core, the load generator included, and whether it was at its limit."""
        share = self.result.cpu_share
        used = [f"{name} {100 * of_core:.0f} %" for name, of_core in self.cpu.items()]
        warning = " (AT ITS LIMIT: these figures are its own)" if share > LIMIT else ""
        return f"of a core: {', '.join(used)}, load generator {100 * share:.0f} %{warning}"


def watch(plan: Plan, pids: Mapping[str, int], beside: Sequence[Plan] = ()) -> tuple[Watched, list[Result]]:
    """Carry ``plan`` out, and the plans ``beside`` it at the same time; watch ``pids`` for as long as requests start.

    Returns the results of ``beside`` as well. Lasts the longest plan's ``seconds`` and grace at most.
    """
    running = [start(one) for one in (plan, *beside)]
    watches = {name: CpuWatch(pid) for name, pid in pids.items()}
    rss: dict[str, list[int]] = {name: [] for name in pids}
    end_s = time.monotonic() + plan.seconds
    while running[0].is_running and time.monotonic() < end_s:
        for name, pid in pids.items():
            rss[name].append(rss_bytes(pid))
        time.sleep(SAMPLE_S)
    cpu = {name: one.share() for name, one in watches.items()}
    first, *others = [one.result() for one in running]
    return Watched(first, cpu, rss), others
