"""One timer for all open streams: a wheel of slots, so that an idle stream costs an entry and no task of its own."""

import asyncio
import math
import time
from typing import Protocol

from tribar.core.ports import Clock

TICK_S = 0.05
"""How finely time is cut: streams that are due within one tick are looked at together."""


class Beating(Protocol):
    """Something that has to be looked at now and then."""

    def beat(self, now_s: float) -> float | None:
        """Do what is due, without waiting; returns when to look again (in the clock's time), None for never."""
        ...


class Pulse:
    """Calls ``beat`` of everything that has joined when it is due, at most one ``TICK_S`` late. One event loop.

    A timer runs only while somebody is there. Members are compared by identity.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._slots: dict[int, dict[Beating, None]] = {}
        self._slot_of: dict[Beating, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_slot = 0

    def __len__(self) -> int:
        return len(self._slot_of)

    def join(self, member: Beating, due_s: float) -> None:
        """Look at ``member`` at ``due_s`` and from then on whenever it says, until ``leave``."""
        if not self._slot_of:
            self._next_slot = self._slot(self._clock())
        self._put(member, due_s)
        if self._timer is None:
            self._arm()

    def leave(self, member: Beating) -> None:
        """Forget ``member`` at once. Idempotent."""
        slot = self._slot_of.pop(member, None)
        if slot is not None:
            members = self._slots[slot]
            del members[member]
            if not members:
                del self._slots[slot]

    def turn(self) -> None:
        """Look at everything that is due by now."""
        now_s = self._clock()
        end = math.floor(now_s / TICK_S) + 1
        due = [slot for slot in range(self._next_slot, end) if slot in self._slots]
        self._next_slot = max(self._next_slot, end)
        for slot in due:
            for member in list(self._slots.get(slot, ())):
                if self._slot_of.get(member) != slot:
                    continue  # it left while another one was looked at
                self.leave(member)
                next_s = member.beat(now_s)
                if next_s is not None:
                    self._put(member, next_s)

    def _put(self, member: Beating, due_s: float) -> None:
        slot = max(self._next_slot, self._slot(due_s))
        self._slot_of[member] = slot
        self._slots.setdefault(slot, {})[member] = None

    def _slot(self, due_s: float) -> int:
        return math.ceil(due_s / TICK_S)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.turn()
        if self._slot_of:
            self._arm()
