"""What a child process writes, over a real pipe."""

import asyncio
import os

from tribar.telemetry.child_output import LINE_COST_BYTES, MAX_LINE_BYTES, MAX_LINES_AT_ONCE, ChildOutput


async def logged(content: bytes, *, max_bytes_per_s: int | None = None) -> list[tuple[str, int]]:
    """The lines, each with the turn of the event loop in which it came."""
    loop = asyncio.get_running_loop()
    lines: list[tuple[str, int]] = []
    turn = 0
    is_over = False

    def tick() -> None:
        nonlocal turn
        turn += 1
        if not is_over:
            loop.call_soon(tick)

    loop.call_soon(tick)
    read_end, write_end = os.pipe()
    output = await ChildOutput.open(read_end, lambda line: lines.append((line, turn)), max_bytes_per_s)

    def write() -> None:
        with os.fdopen(write_end, "wb", buffering=0) as file:
            file.write(content)

    await asyncio.to_thread(write)
    await output.end(30)
    is_over = True
    return lines


async def test_lines_are_cut_and_the_last_needs_no_end() -> None:
    lines = await logged(b"one\n\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\nlast")
    assert [line for line, _ in lines] == ["one", "x" * MAX_LINE_BYTES + " [cut]", "last"]


async def test_many_short_lines_leave_the_loop_its_turns() -> None:
    """A thousand records in one read would hold up every request."""
    lines = await logged(b"".join(b"%d\n" % i for i in range(5000)))
    assert [line for line, _ in lines] == [str(i) for i in range(5000)]
    turns = [turn for _, turn in lines]
    assert max(map(turns.count, set(turns))) <= MAX_LINES_AT_ONCE


async def test_short_lines_count_for_more_than_their_bytes() -> None:
    """2000 lines at 1000 lines in a second: the first thousand at once, the others in the second that follows."""
    began_s = asyncio.get_running_loop().time()
    lines = await logged(b"y\n" * 2000, max_bytes_per_s=1000 * LINE_COST_BYTES)
    assert len(lines) == 2000
    assert asyncio.get_running_loop().time() - began_s >= 0.9
