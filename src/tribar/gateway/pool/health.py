"""Active checks: every upstream is asked from time to time whether it serves, however little is asked of it."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from tribar.gateway.pool.member import Member
from tribar.gateway.pool.pool import Pool

JITTER = 0.2
"""Intervals differ by so much, up and down, so that gateways that were started together do not ask together."""

DOWN_INTERVAL_S = 1.0
"""One that is down is asked at least so often."""


class HealthChecks:
    """Checks the members of ``pool`` and ejects its outliers, until cancelled."""

    def __init__(
        self,
        pool: Pool,
        *,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``draw`` gives a number in [0, 1); ``sleep`` waits between two rounds."""
        self._pool = pool
        self._draw = draw
        self._sleep = sleep
        self._turns = asyncio.Semaphore(pool.policy.max_checks)
        self._watches: dict[Member, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Once a round look who is a member; each of them has a clock of its own."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._follow(tasks)
                self._pool.eject_outliers()
                await self._sleep(self._interval_s())

    def _follow(self, tasks: asyncio.TaskGroup) -> None:
        members = set(self._pool.members.values())
        for member in [member for member in self._watches if member not in members]:
            self._watches.pop(member).cancel()
        for member in members - self._watches.keys():
            self._watches[member] = tasks.create_task(self._watch(member), name=f"check {member.name}")

    async def _watch(self, member: Member) -> None:
        while True:
            interval_s = self._interval_s()
            await self._sleep(interval_s if member.is_up else min(interval_s, DOWN_INTERVAL_S))
            async with self._turns:
                await self._pool.check_health(member)

    def _interval_s(self) -> float:
        return self._pool.policy.check_interval_s * (1 + JITTER * (2 * self._draw() - 1))
