import asyncio
import threading

import pytest

from tribar.core.errors import Unavailable
from tribar.wire import in_process
from tribar.wire.in_process import InProcessChannel, InProcessEndpoint
from tribar.wire.messages import Drain, Hello, Stats


async def filled(endpoint: InProcessEndpoint) -> tuple[InProcessChannel, "asyncio.Task[None]"]:
    """A channel whose last send waits, because the inbox is full."""
    channel = await endpoint.connect()
    endpoint.send(1, Stats())  # a wake-up that is left over must not count as room
    assert await channel.receive() == Stats()
    for number in range(in_process.MAX_INBOX):
        await channel.send(Hello(number))
    sending = asyncio.create_task(channel.send(Drain()))
    done, _ = await asyncio.wait([sending], timeout=0.05)
    assert not done
    return channel, sending


async def test_send_waits_while_the_inbox_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "MAX_INBOX", 5)
    endpoint = InProcessEndpoint()
    _channel, sending = await filled(endpoint)
    assert len(endpoint.poll(0)) == 5
    await sending
    assert [message for _, message in endpoint.poll(0)] == [Drain()]


async def test_a_waiting_send_ends_when_the_engine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "MAX_INBOX", 5)
    endpoint = InProcessEndpoint()
    _channel, sending = await filled(endpoint)
    endpoint.close()
    with pytest.raises(Unavailable):
        await sending


def test_a_client_whose_loop_has_ended_counts_as_gone() -> None:
    endpoint = InProcessEndpoint()

    def client() -> None:
        asyncio.run(connect())

    async def connect() -> None:
        await (await endpoint.connect()).send(Hello(1))

    thread = threading.Thread(target=client)
    thread.start()
    thread.join()
    [(key, message)] = endpoint.poll(0)
    assert message == Hello(1)
    endpoint.send(key, Stats())
    assert endpoint.poll(0) == [(key, None)]
    endpoint.send(key, Stats())
    assert endpoint.poll(0) == []
