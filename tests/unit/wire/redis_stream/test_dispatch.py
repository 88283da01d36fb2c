"""What a gateway lets into an engine's streams, on a Redis that answers when the test says so."""

import asyncio

import pytest

from tribar.core.errors import Overloaded
from tribar.core.ids import Uid
from tribar.core.requests import ModelCard
from tribar.core.sampling.params import SamplingParams
from tribar.wire.messages import Stats, Submit
from tribar.wire.redis_stream import dispatch
from tribar.wire.redis_stream.dispatch import Dispatch
from tribar.wire.redis_stream.envelopes import Registration
from tribar.wire.redis_stream.keys import Keys
from tribar.wire.redis_stream.resp import Reply, Word
from tribar.wire.redis_stream.switchboard import Line

ROOM = 8
CARD = ModelCard(name="m", architecture="fake", max_model_len=128, vocab_size=64)


class SlowPipe:
    """Counts the entries of the one stream, and gives one batch its answers for each release of ``answers``."""

    def __init__(self) -> None:
        self.answers = asyncio.Semaphore(0)
        self.is_asked = asyncio.Event()
        self.n_entries = 0

    async def call(self, *commands: tuple[Word, ...]) -> list[Reply]:
        replies: list[Reply] = []
        for command in commands:
            if command[0] == "XADD":
                self.n_entries += 1
            is_requests = ":requests:" in str(command[1])
            replies.append(b"%d-0" % self.n_entries if command[0] == "XADD" else self.n_entries * is_requests)
        self.is_asked.set()
        await self.answers.acquire()
        return replies


async def test_a_late_answer_about_a_stream_does_not_make_room_for_what_was_sent_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "PATIENCE_S", 0.1)
    exchange, pipe = Dispatch(Keys("c")), SlowPipe()
    exchange.gateway, exchange.is_up = "g", True
    exchange.engines = {"e": Registration(CARD, ROOM, False, Stats())}
    line = Line("e", 1, lambda: None)
    exchange.introduce(line)

    async def send(counter: int) -> None:
        await exchange.room_for(line, 4)
        exchange.say(line, Submit(Uid(1, counter), b"\1\0\0\0", SamplingParams(), 5))

    sending = asyncio.create_task(exchange.sender.run(pipe))  # type: ignore[arg-type]
    await send(0)
    await pipe.is_asked.wait()
    for counter in range(1, ROOM):
        await send(counter)
    pipe.answers.release()  # "there is one", it says, as was true when it was asked
    for counter in range(ROOM, ROOM + 2):
        with pytest.raises(Overloaded):
            await send(counter)
    sending.cancel()
    await asyncio.wait([sending])
    assert pipe.n_entries == ROOM
