"""A long step does not keep the engine from answering: who may not enter is told so while it computes."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engine.engine_rig import LIMITS, Engine, ManualClock, endless, introduced, make_engine, running

from tribar.core.requests import AbortReason
from tribar.engine.loop import LONG_CALL_S
from tribar.runtime.runner import Ticket
from tribar.wire.messages import Abort, Aborted, Failed, Finished


class Gate:
    """Stands before ``sample`` of an engine's runner: a step takes time there, and waits while it is shut."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.threads: list[str] = []
        self.is_shut = False
        self._sample = engine.runner.sample
        self._clock = clock
        engine.runner.sample = self.sample  # type: ignore[method-assign]

    def sample(self, ticket: Ticket, masks: Any = None) -> None:
        self.threads.append(threading.current_thread().name)
        self._clock.now_s += 2 * LONG_CALL_S
        if self.is_shut:
            self.entered.set()
            assert self.opened.wait(20)
        self._sample(ticket, masks)


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_refusal_does_not_wait_for_the_step(depth: int) -> None:
    clock = ManualClock()
    engine = make_engine(endless, replace(LIMITS, max_num_seqs=1, max_waiting=1), depth=depth, clock=clock)
    gate = Gate(engine, clock)
    async with running(engine):
        talker = await introduced(engine)
        first = await talker.submit(1, max_tokens=1000)
        await talker.begun(first)
        gate.is_shut = True
        assert await asyncio.to_thread(gate.entered.wait, 20)
        queued, refused = await talker.submit(2), await talker.submit(3)
        terminal = await talker.ended(refused)
        assert isinstance(terminal, Failed)
        assert terminal.error == "Overloaded"
        assert not gate.opened.is_set()
        gate.is_shut = False
        gate.opened.set()
        await talker.channel.send(Abort(first, AbortReason.CLIENT_GONE))
        assert isinstance(await talker.ended(first), Aborted)
        assert isinstance(await talker.ended(queued), Finished)
    assert any(name.startswith("tribar-step") for name in gate.threads)
    assert not gate.threads[0].startswith("tribar-step")
