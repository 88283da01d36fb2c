"""Models that give no answer any more: what is inside fails, and closing ends."""

import asyncio

import pytest
from tests.unit.modelserver.scheduling.rig import Rig, signature
from tests.unit.modelserver.scheduling.virtual_loop import VirtualLoop, run_virtually

from tribar.core.errors import Unavailable
from tribar.modelserver.backends.base import Execution
from tribar.modelserver.batcher import BatchingPolicy
from tribar.modelserver.scheduling.workers import GRACE_S, HUNG_GRACE_S

PATIENCE_S = 300.0
ALONE = BatchingPolicy(max_batch_size=1)


class Hung:
    """Never comes back from ``execute``; where it ``is_killable``, closing it ends that."""

    def __init__(self, *, is_killable: bool) -> None:
        self.is_closed = False
        self._is_killable = is_killable
        self._killed = asyncio.Event()

    async def execute(self, execution: Execution) -> None:
        await self._killed.wait()

    async def close(self) -> None:
        self.is_closed = True
        if self._is_killable:
            self._killed.set()
        else:
            await asyncio.Event().wait()


class Slow:
    """Answers a decoupled request now and then, for longer than anybody's patience in all."""

    async def execute(self, execution: Execution) -> None:
        for _ in range(5):
            await asyncio.sleep(0.9 * PATIENCE_S)
            execution.replies[0].send((), is_final=False)
        execution.replies[0].send((), is_final=True)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("is_killable", "end_s"), [(True, HUNG_GRACE_S), (False, HUNG_GRACE_S + GRACE_S)])
def test_closing_ends_and_everybody_inside_is_told(is_killable: bool, end_s: float) -> None:
    """Those that run, and those that wait for them."""

    async def body(loop: VirtualLoop) -> None:
        hung = Hung(is_killable=is_killable)
        rig = Rig(loop, ALONE, [hung])
        running, waiting = rig.send(), rig.send()
        await rig.scheduler.close(PATIENCE_S)
        assert rig.scheduler.n_inside == 0
        for outcome in (running, waiting):
            assert isinstance(outcome.errors[0], Unavailable)
            assert "gave no answer and was unloaded" in str(outcome.error)
            assert outcome.end_ns == round(PATIENCE_S * 1e9)
        assert loop.time() == pytest.approx(PATIENCE_S + end_s)
        assert hung.is_closed

    run_virtually(body)


def test_a_model_that_still_answers_is_waited_for() -> None:
    async def body(loop: VirtualLoop) -> None:
        rig = Rig(loop, ALONE, [Slow()], model=signature(is_decoupled=True))
        outcome = rig.send()
        await rig.until(1)
        await rig.scheduler.close(PATIENCE_S)
        assert (len(outcome.responses), outcome.errors) == (6, [])

    run_virtually(body)
