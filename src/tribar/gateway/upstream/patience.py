"""How long an upstream is waited for: its own limit for the next step, and the caller's deadline over all."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tribar.core.errors import DeadlineExceeded, Unavailable
from tribar.core.ports import Clock

T = TypeVar("T")


class Patience:
    """``deadline_s`` counts from its making; None is "for ever"."""

    def __init__(self, deadline_s: float | None, clock: Clock) -> None:
        self._clock = clock
        self._expires_s = None if deadline_s is None else clock() + deadline_s

    async def wait(self, awaited: Awaitable[T], limit_s: float) -> T:
        """What ``awaited`` returns. Raises ``Unavailable`` after ``limit_s``, ``DeadlineExceeded`` if that is first."""
        left_s = None if self._expires_s is None else max(0.0, self._expires_s - self._clock())
        is_deadline = left_s is not None and left_s < limit_s
        scope = asyncio.timeout(max(0.0, limit_s if left_s is None else min(left_s, limit_s)))
        try:
            async with scope:
                return await awaited
        except TimeoutError as error:
            if not scope.expired():
                raise
            if is_deadline:
                raise DeadlineExceeded("the request's deadline passed") from error
            raise Unavailable(f"it was silent for {limit_s:.3g} s", retry_after_s=1.0) from error
