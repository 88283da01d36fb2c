"""One suite for every implementation of ``Channel`` and ``EngineEndpoint``."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.lines import CARD, LINES, Line

from tribar.core.errors import Overloaded, Unavailable
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason, FinishReason, Timing
from tribar.core.sampling.params import SamplingParams, TokenLogprobs
from tribar.wire.channel import Channel, EngineEndpoint
from tribar.wire.messages import (
    Abort,
    Drain,
    Finished,
    Hello,
    Output,
    Ready,
    Stats,
    StepOutput,
    Submit,
    ToClient,
    ToEngine,
)
from tribar.wire.outbox import MAX_PENDING_ENTRIES

FINISHED = Finished(FinishReason.LENGTH, 3, 2, 1, Timing(0.1, 0.2, 0.3, 4))


@pytest.fixture(params=sorted(LINES))
async def line(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Line]:
    with LINES[request.param](tmp_path) as made:
        yield made
        await made.close()


async def polled(endpoint: EngineEndpoint, n_messages: int) -> list[tuple[int, ToEngine | None]]:
    """Poll in a thread, as the engine does, until ``n_messages`` came in."""

    def collect() -> list[tuple[int, ToEngine | None]]:
        found: list[tuple[int, ToEngine | None]] = []
        while len(found) < n_messages:
            found += endpoint.poll(10.0)
        return found

    return await asyncio.to_thread(collect)


async def introduced(line: Line, number: int = 1) -> tuple[Channel, int]:
    """A connected client and its key."""
    channel = await line.connect()
    await channel.send(Hello(number))
    [(key, message)] = await polled(line.endpoint, 1)
    assert message == Hello(number)
    return channel, key


async def test_every_message_arrives_as_it_was_sent(line: Line) -> None:
    channel, key = await introduced(line)
    uid = Uid(1, 2, 3)
    sent: list[ToEngine] = [
        Submit(
            uid,
            b"\1\0\0\0",
            SamplingParams(seed=2**64 - 1, logit_bias=((1, -100.0),)),
            5,
            stop_ids=(2,),
            deadline_s=1.5,
            namespace=b"n" * 16,
        ),
        Abort(uid, AbortReason.STOP_STRING, 7),
        Drain(),
    ]
    for message in sent:
        await channel.send(message)
    assert await polled(line.endpoint, 3) == [(key, message) for message in sent]
    logprobs = [TokenLogprobs(5, -0.5, (5, 6), (-0.5, -1.5))]
    outputs: list[ToClient] = [
        Ready(CARD),
        StepOutput([Output(uid, [5], logprobs, [None, *logprobs], FINISHED)]),
        Stats(n_running=3, step_s=0.5),
    ]
    for output in outputs:
        line.endpoint.send(key, output)
    assert [await channel.receive() for _ in outputs] == [
        Ready(CARD),
        StepOutput([Output(uid, [5], logprobs, [None, *logprobs], FINISHED)]),
        Stats(n_running=3, step_s=0.5),
    ]


async def test_ten_thousand_messages_keep_their_order(line: Line) -> None:
    channel, key = await introduced(line)

    async def ask() -> None:
        for counter in range(10_000):
            await channel.send(Abort(Uid(1, counter), AbortReason.CLIENT_GONE))

    asking = asyncio.create_task(ask())
    received = await polled(line.endpoint, 10_000)
    await asking
    assert [message.uid.counter for _, message in received if isinstance(message, Abort)] == list(range(10_000))
    assert {client for client, _ in received} == {key}


async def test_a_reader_that_keeps_up_gets_everything_in_order(line: Line) -> None:
    channel, key = await introduced(line)
    n_steps = 10_000
    uid = Uid(1, 0)

    received: list[object] = []

    def engine() -> None:
        for step in range(n_steps):
            terminal = FINISHED if step == n_steps - 1 else None
            line.endpoint.send(key, StepOutput([Output(uid, [step], terminal=terminal)]))
            received.extend(line.endpoint.poll(0))
        while not received:  # the client's disconnect: until then pending output is written
            received.extend(line.endpoint.poll(None))

    thread = threading.Thread(target=engine)
    thread.start()
    ids: list[int] = []
    terminal = None
    while terminal is None:
        message = await channel.receive()
        assert isinstance(message, StepOutput)
        for output in message.outputs:
            ids += output.ids
            terminal = output.terminal
    await channel.close()
    await asyncio.to_thread(thread.join)
    assert ids == list(range(n_steps))


async def test_output_merges_by_uid_while_the_reader_stalls(line: Line) -> None:
    """BUG-017: nothing is lost, the terminal comes last, and the number of messages does not grow with the steps."""
    channel, key = await introduced(line)
    n_steps, n_requests = 3_000, 20
    uids = [Uid(1, counter) for counter in range(n_requests)]
    for step in range(n_steps):
        terminal = FINISHED if step == n_steps - 1 else None
        line.endpoint.send(key, StepOutput([Output(uid, [step], terminal=terminal) for uid in uids]))
        line.endpoint.send(key, Stats(n_steps=step))
    n_messages = 0
    ids: dict[Uid, list[int]] = {uid: [] for uid in uids}
    last_stats = -1
    ended: list[Uid] = []
    while len(ended) < n_requests or last_stats < n_steps - 1:
        line.endpoint.poll(0)
        message = await channel.receive()
        n_messages += 1
        if isinstance(message, Stats):
            last_stats = message.n_steps
            continue
        assert isinstance(message, StepOutput)
        for output in message.outputs:
            assert output.uid not in ended
            ids[output.uid] += output.ids
            if output.terminal is not None:
                ended.append(output.uid)
    assert all(ids[uid] == list(range(n_steps)) for uid in uids)
    assert n_messages < n_steps


async def test_a_client_that_asks_for_ever_and_never_reads_is_disconnected(line: Line) -> None:
    """BUG-017: the outbox is bounded even then."""
    _channel, key = await introduced(line)
    n_tokens = 0
    counter = 0
    while not (received := line.endpoint.poll(0)):
        line.endpoint.send(key, StepOutput([Output(Uid(1, counter), [7] * 50_000, terminal=FINISHED)]))
        counter += 1
        n_tokens += 50_000
        assert n_tokens < 2 * MAX_PENDING_ENTRIES
    assert received == [(key, None)]


async def test_a_big_message_passes_in_both_directions(line: Line) -> None:
    channel, key = await introduced(line)
    submit = Submit(Uid(1, 1), b"\7\0\0\0" * 1_000_000, SamplingParams(), 1)
    receiving = asyncio.create_task(polled(line.endpoint, 1))
    await channel.send(submit)
    assert await receiving == [(key, submit)]
    n_ids = 1_000_000
    line.endpoint.send(key, StepOutput([Output(submit.uid, list(range(n_ids)), terminal=FINISHED)]))

    writing = asyncio.create_task(polled(line.endpoint, 1))
    ids: list[int] = []
    terminal = None
    while terminal is None:
        message = await channel.receive()
        assert isinstance(message, StepOutput)
        [output] = message.outputs
        ids += output.ids
        terminal = output.terminal
    assert ids == list(range(n_ids))
    await channel.close()
    assert await writing == [(key, None)]


async def test_a_client_that_leaves_is_reported_once(line: Line) -> None:
    channel, key = await introduced(line)
    other, other_key = await introduced(line, 2)
    await channel.close()
    await channel.close()
    assert await polled(line.endpoint, 1) == [(key, None)]
    line.endpoint.send(key, Stats())
    await other.send(Drain())
    assert await polled(line.endpoint, 1) == [(other_key, Drain())]
    with pytest.raises(Unavailable):
        await channel.send(Drain())
    with pytest.raises(Unavailable):
        await channel.receive()


async def test_messages_sent_before_leaving_come_before_the_disconnect(line: Line) -> None:
    channel, key = await introduced(line)
    await channel.send(Abort(Uid(1, 1), AbortReason.DEADLINE))
    await channel.close()
    assert await polled(line.endpoint, 2) == [(key, Abort(Uid(1, 1), AbortReason.DEADLINE)), (key, None)]


async def test_a_dropped_client_sees_the_engine_gone(line: Line) -> None:
    channel, key = await introduced(line)
    line.endpoint.drop(key)
    line.endpoint.drop(key)
    assert await polled(line.endpoint, 1) == [(key, None)]
    with pytest.raises(Unavailable):
        await channel.receive()


async def test_output_sent_before_the_engine_closes_still_arrives(line: Line) -> None:
    channel, key = await introduced(line)
    line.endpoint.send(key, StepOutput([Output(Uid(1, 1), [1], terminal=FINISHED)]))
    line.endpoint.close()
    line.endpoint.close()
    assert await channel.receive() == StepOutput([Output(Uid(1, 1), [1], terminal=FINISHED)])
    with pytest.raises(Unavailable) as caught:
        await channel.receive()
    assert caught.value.retry_after_s is not None
    with pytest.raises(Unavailable):
        await channel.send(Drain())
    with pytest.raises(Unavailable):
        await line.connect()


async def test_closing_flushes_more_than_the_line_holds(line: Line) -> None:
    channel, key = await introduced(line)
    n_ids = 500_000
    line.endpoint.send(key, StepOutput([Output(Uid(1, 1), list(range(n_ids)), terminal=FINISHED)]))
    closing = asyncio.create_task(asyncio.to_thread(line.endpoint.close, 30.0))
    ids: list[int] = []
    while len(ids) < n_ids:
        message = await channel.receive()
        assert isinstance(message, StepOutput)
        ids += message.outputs[0].ids
    await closing
    assert ids == list(range(n_ids))
    with pytest.raises(Unavailable):
        await channel.receive()


async def test_a_waiting_receive_ends_when_the_engine_closes(line: Line) -> None:
    channel, _ = await introduced(line)
    receiving = asyncio.create_task(channel.receive())
    await asyncio.to_thread(line.endpoint.close)
    with pytest.raises(Unavailable):
        await receiving


async def test_a_cancelled_receive_loses_nothing(line: Line) -> None:
    channel, key = await introduced(line)
    for step in range(50):
        receiving = asyncio.create_task(channel.receive())
        await asyncio.wait([receiving], timeout=0)
        receiving.cancel()
        await asyncio.wait([receiving])
        line.endpoint.send(key, Stats(n_steps=step))
        assert await channel.receive() == Stats(n_steps=step)


async def test_wake_ends_a_poll_early_and_is_remembered(line: Line) -> None:
    line.endpoint.wake()
    assert await asyncio.to_thread(line.endpoint.poll, None) == []
    polling = asyncio.create_task(asyncio.to_thread(line.endpoint.poll, None))
    line.endpoint.wake()
    assert await polling == []
    assert line.endpoint.poll(0) == []


async def test_clients_do_not_get_each_others_output(line: Line) -> None:
    clients = [await introduced(line, number) for number in range(5)]
    for number, (_, key) in enumerate(clients):
        line.endpoint.send(key, Stats(n_steps=number))
    assert [await channel.receive() for channel, _ in clients] == [Stats(n_steps=number) for number in range(5)]


async def test_clients_that_come_and_go_while_the_engine_stands_still_leave_nothing_behind(line: Line) -> None:
    """BUG-017 the other way round: a send that was cancelled while it waited was not sent."""
    channel, key = await introduced(line)
    n_sent = n_cancelled = 0
    while n_cancelled < 50:
        submit = Submit(Uid(1, n_sent, n_cancelled), b"\1\0\0\0" * 4000, SamplingParams(), 5)
        sending = asyncio.create_task(channel.send(submit))
        await asyncio.wait([sending], timeout=0.2 if n_cancelled == 0 else 0.001)
        if not sending.done():
            sending.cancel()
            n_cancelled += 1
        elif isinstance(sending.exception(), Overloaded):  # this process stood still for longer than its patience
            n_cancelled += 1
        else:
            sending.result()
            assert n_cancelled == 0, "the line had been full"
            n_sent += 1
    last = asyncio.create_task(channel.send(Drain()))
    received = await polled(line.endpoint, n_sent + 1)
    await last
    uids = [message.uid for _, message in received if isinstance(message, Submit)]
    assert uids == [Uid(1, n, 0) for n in range(n_sent)]
    assert received[-1] == (key, Drain())
