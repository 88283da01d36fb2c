import asyncio
import gc
from collections.abc import MutableMapping
from typing import Any

import pytest

from tribar.core.errors import Cancelled, Overloaded
from tribar.gateway.guard import Lifeline


class Client:
    """The messages of ``receive``; waits when there are none."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()

    async def receive(self) -> MutableMapping[str, Any]:
        return await self.messages.get()

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


async def forever() -> None:
    await asyncio.Event().wait()


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_work_that_ends_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    async with Lifeline(Client().receive):
        await asyncio.sleep(0)
    await settle()
    assert asyncio.all_tasks() == before


async def test_the_works_own_error_passes() -> None:
    with pytest.raises(KeyError):
        async with Lifeline(Client().receive):
            raise KeyError("k")


async def test_a_client_that_leaves_ends_the_work_after_it_has_cleaned_up() -> None:
    """BUG-009; other messages than the disconnect are passed over."""
    client, released = Client(), asyncio.Event()
    client.messages.put_nowait({"type": "http.request"})
    client.leave()

    async def work() -> None:
        async with Lifeline(client.receive):
            try:
                await forever()
            finally:
                await asyncio.sleep(0)
                released.set()

    with pytest.raises(Cancelled, match="went away"):
        await work()
    assert released.is_set()
    await asyncio.sleep(0)  # the cancellation has been used up


async def test_the_first_reason_counts_and_after_the_end_there_is_none() -> None:
    lifeline = Lifeline(Client().receive)

    async def work() -> None:
        async with lifeline:
            lifeline.break_off(Overloaded("first"))
            lifeline.break_off(Cancelled("second"))
            await forever()

    with pytest.raises(Overloaded):
        await work()
    lifeline.break_off(Cancelled("too late"))
    await settle()


async def test_an_error_while_it_is_broken_off_passes() -> None:
    lifeline = Lifeline(Client().receive)

    async def work() -> None:
        async with lifeline:
            try:
                lifeline.break_off(Cancelled("gone"))
                await forever()
            finally:
                raise KeyError("k")

    with pytest.raises(KeyError):
        await work()
    await asyncio.sleep(0)


async def test_a_work_that_ends_in_spite_of_it_does_not_count() -> None:
    lifeline = Lifeline(Client().receive)

    async def work() -> None:
        async with lifeline:
            lifeline.break_off(Cancelled("gone"))
            try:
                await forever()
            except asyncio.CancelledError:
                return

    with pytest.raises(Cancelled, match="gone"):
        await work()


async def test_a_cancellation_from_outside_passes() -> None:
    """Also one that comes together with a reason of our own."""
    for breaks_off in (False, True):
        lifeline = Lifeline(Client().receive)

        async def work(lifeline: Lifeline = lifeline) -> None:
            async with lifeline:
                await forever()

        before = asyncio.all_tasks()
        task = asyncio.create_task(work())
        await settle()
        if breaks_off:
            lifeline.break_off(Cancelled("gone"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()
        assert asyncio.all_tasks() == before


async def test_nothing_is_left_for_the_collector() -> None:
    """A thousand requests a second would leave it a hundred thousand objects in cycles, and a pause for each stream."""

    async def request() -> None:
        async with Lifeline(Client().receive):
            await asyncio.sleep(0)

    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            await asyncio.create_task(request())
            await settle()
        assert gc.collect() < 20
    finally:
        gc.enable()
