import asyncio

import pytest
from tests.unit.engine.client_rig import finished

from tribar.core.errors import Unavailable
from tribar.core.ids import Uid
from tribar.engine.mailbox import Mailbox
from tribar.wire.messages import Output

UID = Uid(1, 2)


async def test_a_slow_reader_gets_one_larger_piece() -> None:
    """BUG-017: what arrives meanwhile merges."""
    mailbox = Mailbox()
    for token in range(1000):
        mailbox.put(Output(UID, [token]))
    mailbox.put(Output(UID, [], terminal=finished(1000)))
    assert await mailbox.get() == Output(UID, list(range(1000)), terminal=finished(1000))


async def test_get_waits_for_something() -> None:
    mailbox = Mailbox()
    for token in range(3):
        getting = asyncio.create_task(mailbox.get())
        done, _ = await asyncio.wait([getting], timeout=0)
        assert not done
        mailbox.put(Output(UID, [token]))
        assert await getting == Output(UID, [token])


async def test_a_failure_comes_after_what_arrived_before_it() -> None:
    mailbox = Mailbox()
    mailbox.put(Output(UID, [1]))
    mailbox.fail(Unavailable("gone"))
    assert (await mailbox.get()).ids == [1]
    with pytest.raises(Unavailable, match="gone"):
        await mailbox.get()


async def test_a_failure_wakes_a_waiting_reader() -> None:
    mailbox = Mailbox()
    getting = asyncio.create_task(mailbox.get())
    await asyncio.wait([getting], timeout=0)
    mailbox.fail(Unavailable("gone"))
    with pytest.raises(Unavailable, match="gone"):
        await getting
