"""Nobody waits for ever (BUG-023 b): bounds in steps, for either class of requests against a flood of the other."""

from collections.abc import Callable

import pytest
from tests.unit.engine.driving import Client, Drive

from tribar.engine.config import SchedulerConfig

LONG, SHORT = 100, 5


def small_drive(depth: int) -> Drive:
    """A pool of 8 blocks of 16 tokens."""
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=128)
    return Drive(config, n_blocks=9, block_size=16, max_rows=4, depth=depth)


def flood_until(drive: Drive, client: Client, add: Callable[[int], Client], max_steps: int) -> int:
    """Keep two requests of the flood waiting until ``client`` ends; returns the number of steps it took."""
    number = 1000
    for n_steps in range(max_steps):
        if client.terminal is not None:
            return n_steps
        while drive.scheduler.stats().n_waiting < 2:
            add(number)
            number += 1
        drive.step()
    raise AssertionError(f"still waiting after {max_steps} steps")


@pytest.mark.parametrize("depth", [1, 2])
def test_long_prompt_finishes_under_a_flood_of_short_ones(depth: int) -> None:
    drive = small_drive(depth)
    for number in range(4):
        drive.add(number, [number] * SHORT, max_tokens=8)
    long = drive.add(100, [7] * LONG, max_tokens=8)
    flood_until(drive, long, lambda number: drive.add(number, [number % 29] * SHORT, max_tokens=8), max_steps=60)
    drive.run()


@pytest.mark.parametrize("depth", [1, 2])
def test_short_prompt_finishes_under_a_flood_of_long_ones(depth: int) -> None:
    drive = small_drive(depth)
    for number in range(2):
        drive.add(number, [number] * LONG, max_tokens=8)
    short = drive.add(100, [7] * SHORT, max_tokens=8)
    flood_until(drive, short, lambda number: drive.add(number, [number % 29] * LONG, max_tokens=8), max_steps=60)
    drive.run()


def test_first_come_first_served_without_priorities() -> None:
    """Starts happen in order of arrival, however large the head of the queue is."""
    drive = small_drive(depth=1)
    sizes = [5, 100, 5, 60, 5, 100, 5, 5]
    clients = [drive.add(number, [number] * size, max_tokens=6) for number, size in enumerate(sizes)]
    firsts: list[int] = []
    while not drive.scheduler.is_idle:
        drive.step()
        firsts += [i for i, client in enumerate(clients) if client.ids and i not in firsts]
    starts = [client.terminal.timing.queue_s for client in clients]
    assert starts == sorted(starts)
    assert firsts == sorted(firsts)
    drive.run()


def test_decodes_as_many_as_the_budget_leave_room_for_a_prefill() -> None:
    """With more rows than tokens per step, no running sequence is left out of step after step."""
    config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=3, max_model_len=128)
    drive = Drive(config)
    for number in range(3):
        drive.add(number, [number], max_tokens=100)
    drive.step()
    drive.step()
    newcomer = drive.add(9, [9] * 6, max_tokens=1)
    for client in list(drive.clients.values())[:1]:
        drive.abort(client)
    for _ in range(7):
        drive.step()
    assert newcomer.terminal
    drive.run()
