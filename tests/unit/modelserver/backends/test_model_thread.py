import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest

from tribar.core.errors import Internal
from tribar.modelserver.backends.model_thread import ModelThread


class Owned:
    """What lives in the thread."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


async def test_the_object_lives_in_its_thread() -> None:
    thread = await ModelThread.opened("t", Owned)
    made_in, used_in = await thread.run(lambda owned: (owned.thread, threading.get_ident()))
    assert made_in == used_in != threading.get_ident()
    gone = await thread.run(weakref.ref)
    await thread.close()
    gc.collect()
    assert gone() is None


async def test_what_fails_is_raised_and_the_thread_goes_on() -> None:
    thread = await ModelThread.opened("t", Owned)
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda owned: 1 / 0)
    assert await thread.run(lambda owned: 5) == 5
    await thread.close()


async def test_what_cannot_be_made_leaves_no_thread() -> None:
    with pytest.raises(ZeroDivisionError):
        await ModelThread.opened("t_of_nothing", lambda: 1 / 0)
    assert "t_of_nothing" not in {thread.name for thread in threading.enumerate()}


async def test_a_cancelled_opening_leaves_no_thread() -> None:
    loop = asyncio.get_running_loop()
    started, release = asyncio.Event(), threading.Event()

    def make() -> Owned:
        loop.call_soon_threadsafe(started.set)
        release.wait()
        return Owned()

    opening = asyncio.create_task(ModelThread.opened("t_cancelled", make))
    await started.wait()
    opening.cancel()
    loop.call_soon(release.set)
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert "t_cancelled" not in {thread.name for thread in threading.enumerate()}


async def test_a_cancelled_job_runs_to_its_end_before_the_close() -> None:
    thread = await ModelThread.opened("t", Owned)
    loop = asyncio.get_running_loop()
    started, release, ended = asyncio.Event(), threading.Event(), []

    def job(owned: Owned) -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait()
        ended.append(owned)

    running = asyncio.create_task(thread.run(job))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    release.set()
    await thread.close()
    assert len(ended) == 1


async def test_jobs_do_not_pile_up() -> None:
    thread = await ModelThread.opened("t", Owned)
    release = threading.Event()
    jobs = [asyncio.create_task(thread.run(lambda owned: release.wait())) for _ in range(4)]
    results = asyncio.gather(*jobs, return_exceptions=True)
    await asyncio.sleep(0)
    release.set()
    assert any(isinstance(result, Internal) for result in await results)
    await thread.close()


async def test_many_jobs_without_a_lost_wake_up() -> None:
    thread = await ModelThread.opened("t", Owned)
    for number in range(5000):
        assert await thread.run(partial(_given, number)) == number
    await thread.close()
    await thread.close()


def _given(number: int, _: Owned) -> int:
    return number
