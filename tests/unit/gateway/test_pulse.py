import asyncio
import random
from dataclasses import dataclass, field

from tribar.gateway.pulse import TICK_S, Pulse


@dataclass(eq=False)
class Member:
    """Beats every ``period_s``, ``n_left`` times."""

    period_s: float
    n_left: int = 10**9
    beats: list[float] = field(default_factory=list)

    def beat(self, now_s: float) -> float | None:
        self.beats.append(now_s)
        self.n_left -= 1
        return now_s + self.period_s if self.n_left else None


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def test_each_beats_when_it_is_due_and_at_most_a_tick_late() -> None:
    """Against the obvious list of due times, many seeds; some leave, some join later, time also jumps."""
    for seed in range(30):
        rng = random.Random(seed)
        clock = FakeClock()
        pulse = Pulse(clock)
        due: dict[Member, float] = {}
        for _ in range(400):
            if rng.random() < 0.2:
                member = Member(rng.uniform(0.0, 3.0))
                due[member] = clock.now_s + rng.uniform(0.0, 3.0)
                pulse.join(member, due[member])
            if due and rng.random() < 0.1:
                gone = rng.choice(list(due))
                del due[gone]
                pulse.leave(gone)
                pulse.leave(gone)
                gone.beats.clear()
            clock.now_s += rng.choice((0.01, 0.05, 0.3, 4.0))
            pulse.turn()
            for member, due_s in due.items():
                if member.beats:
                    (beat_s,) = member.beats
                    assert beat_s == clock.now_s >= due_s
                    due[member] = beat_s + member.period_s
                    member.beats.clear()
                else:
                    assert clock.now_s < due_s + TICK_S
            assert len(pulse) == len(due)
        for member in due:
            pulse.leave(member)
        assert len(pulse) == 0


async def test_one_that_leaves_during_a_turn_is_not_looked_at() -> None:
    clock = FakeClock()
    pulse = Pulse(clock)
    second = Member(1.0)

    class First:
        def beat(self, now_s: float) -> float | None:
            pulse.leave(second)
            return None

    pulse.join(First(), clock.now_s)
    pulse.join(second, clock.now_s)
    clock.now_s += 1.0
    pulse.turn()
    assert second.beats == []
    assert len(pulse) == 0


async def test_the_timer_runs_by_itself_and_again_after_a_rest() -> None:
    loop = asyncio.get_running_loop()
    pulse = Pulse(loop.time)
    for _ in range(2):
        done = asyncio.Event()

        class Once:
            def beat(self, now_s: float, done: asyncio.Event = done) -> float | None:
                done.set()
                return None

        pulse.join(Once(), loop.time())
        async with asyncio.timeout(10):
            await done.wait()
        assert len(pulse) == 0
