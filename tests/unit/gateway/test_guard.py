import asyncio
from typing import NoReturn

import pytest

from tribar.core.errors import Cancelled
from tribar.gateway.guard import disconnected, run_beside


async def fails() -> NoReturn:
    raise Cancelled("guard")


async def waits() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def test_the_result_passes_and_the_guards_end() -> None:
    async def work() -> int:
        return 7

    before = asyncio.all_tasks()
    assert await run_beside(work(), waits(), waits()) == 7
    assert asyncio.all_tasks() == before


async def test_the_works_own_error_passes() -> None:
    async def work() -> int:
        raise KeyError("k")

    with pytest.raises(KeyError):
        await run_beside(work(), waits())


async def test_a_guard_ends_the_work_before_it_is_raised() -> None:
    released = False

    async def work() -> None:
        nonlocal released
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            released = True

    with pytest.raises(Cancelled, match="guard"):
        await run_beside(work(), waits(), fails())
    assert released


async def test_cancelling_the_whole_ends_everything() -> None:
    before = asyncio.all_tasks()
    whole = asyncio.create_task(run_beside(waits(), waits()))
    await asyncio.sleep(0)
    whole.cancel()
    with pytest.raises(asyncio.CancelledError):
        await whole
    assert asyncio.all_tasks() == before


async def test_disconnected_ignores_other_messages() -> None:
    messages = iter([{"type": "http.request"}, {"type": "http.request"}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, str]:
        return next(messages)

    with pytest.raises(Cancelled):
        await disconnected(receive)
    assert list(messages) == []
