"""The wire over Redis Streams against a real server: who answers what when somebody dies. Laws 3 and 12."""

import asyncio
from collections.abc import Iterator

import pytest
import redis
from tests.process.wire.redis_rig import FINISHED, LIVENESS_S, Site, line, outputs, request, until
from tests.servers.valkey import Valkey, valkey

from tribar.core.errors import Unavailable
from tribar.core.ids import Uid
from tribar.core.requests import AbortReason
from tribar.wire.messages import Abort, Aborted, Failed, Output, Submit


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


@pytest.fixture
def site(server: Valkey) -> Iterator[Site]:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        yield Site(server, client)


async def test_an_engine_reads_only_what_it_can_admit(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway, max_open=2) as engine:
        channel, key = await line(gateway, engine, 1)
        for counter in range(5):
            await channel.send(request(Uid(1, counter)))
        read = await engine.poll_for(0.3)
        assert [message.uid.counter for _, message in read if isinstance(message, Submit)] == [0, 1]
        await channel.send(Abort(Uid(1, 0), AbortReason.STOP_STRING, 1))  # not behind the requests that wait
        assert (key, Abort(Uid(1, 0), AbortReason.STOP_STRING, 1)) in await engine.poll_for(0.3)
        engine.answer(key, Uid(1, 0), [1], FINISHED)
        assert (await engine.submit())[1].uid == Uid(1, 2)


async def test_what_has_been_read_is_deleted(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway) as engine:
        channel, key = await line(gateway, engine, 1)
        await channel.send(request(Uid(1, 0)))
        await engine.submit()
        engine.answer(key, Uid(1, 0), [1], FINISHED)
        assert await outputs(channel) == [Output(Uid(1, 0), [1], terminal=FINISHED)]
        await engine.poll_for(0.3)
        streams = [name for name in site.redis.scan_iter("tribar:{site}:*") if site.redis.type(name) == b"stream"]
        assert len(streams) == 3
        assert [site.redis.xlen(name) for name in streams] == [0, 0, 0]
        assert all(site.redis.pttl(name) > 0 for name in site.redis.scan_iter("*")), (
            "something would stay after a crash"
        )


async def test_an_unstarted_request_of_a_dead_engine_is_answered_by_another_one(site: Site) -> None:
    """Attempt + 1; its client knows nothing of it, and what the dead engine says afterwards is stale."""
    async with site.gateway() as gateway, site.engine(gateway) as first:
        channel, key = await line(gateway, first, 1)
        await channel.send(request(Uid(1, 0)))
        await channel.send(request(Uid(1, 1)))
        await first.submit()
        async with site.engine(gateway) as second:
            site.cut_off(first)
            moved = [await second.submit(), await second.submit()]
            assert sorted(submit.uid for _, submit in moved) == [Uid(1, 0, 1), Uid(1, 1, 1)]
            first.answer(key, Uid(1, 0), [7])
            for other_key, submit in moved:
                second.answer(other_key, submit.uid, [1], FINISHED)
            ended: list[Output] = []
            while len(ended) < 2:
                ended += await outputs(channel)
            assert sorted(output.uid for output in ended) == [Uid(1, 0), Uid(1, 1)]
            assert [output.ids for output in ended] == [[1], [1]]
            with pytest.raises(Unavailable):
                await channel.receive()


async def test_a_started_request_of_a_dead_engine_fails_once(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway) as first, site.engine(gateway) as second:
        channel, key = await line(gateway, first, 1)
        await channel.send(request(Uid(1, 0)))
        await first.submit()
        first.answer(key, Uid(1, 0), [3])
        assert (await outputs(channel))[0].ids == [3]
        site.cut_off(first)
        [output] = await outputs(channel)
        assert isinstance(output.terminal, Failed)
        assert output.terminal.error == "Unavailable"
        with pytest.raises(Unavailable):
            await channel.receive()
        with pytest.raises(Unavailable):
            await channel.send(request(Uid(1, 1)))
        assert not [m for _, m in await second.poll_for(0.5) if isinstance(m, Submit)]


async def test_an_engine_taken_for_dead_hangs_up_and_comes_back_under_another_name(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway) as engine:
        _, key = await line(gateway, engine, 1)
        site.declare_dead(engine.name)
        await until(lambda: bool(set(gateway.engines) - {engine.name}), gateway)
        assert (key, None) in await engine.poll_for(0.1)
        [engine.name] = set(gateway.engines) - {engine.name}
        await line(gateway, engine, 2)


async def test_a_dead_gateway_takes_its_requests_along(site: Site) -> None:
    async with site.gateway() as gateway, site.gateway() as other, site.engine(gateway) as engine:
        await until(lambda: engine.name in other.engines, other)
        channel, key = await line(gateway, engine, 1)
        _, other_key = await line(other, engine, 2)
        await channel.send(request(Uid(1, 0)))
        await engine.submit()
        before = set(site.redis.scan_iter("tribar:{site}:output:*"))
        assert len(before) == 2
        site.redis.delete(*before)  # both: as if nobody had renewed them
        gone = await engine.poll_for(1.5 * LIVENESS_S)
        assert {(key, None), (other_key, None)} <= set(gone)
        with pytest.raises(Unavailable):
            await channel.receive()
        assert not before & set(site.redis.scan_iter("tribar:{site}:output:*")), "an engine brought a stream back"


async def test_a_leaving_engine_finishes_what_it_has_begun_and_leaves_the_rest_to_others(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway) as first, site.engine(gateway) as second:
        channel, key = await line(gateway, first, 1)
        await channel.send(request(Uid(1, 0)))
        await channel.send(request(Uid(1, 1)))
        await first.submit()
        await first.submit()
        first.answer(key, Uid(1, 0), [1])
        first.endpoint.leave()
        await channel.send(request(Uid(1, 2)))
        first.answer(key, Uid(1, 1), [], Aborted(AbortReason.DRAIN))
        polling = asyncio.create_task(first.poll_for(1.0))
        moved = [await second.submit(), await second.submit()]
        assert sorted(submit.uid for _, submit in moved) == [Uid(1, 1, 1), Uid(1, 2, 1)]
        await polling
        first.answer(key, Uid(1, 0), [2], FINISHED)
        for other_key, submit in moved:
            second.answer(other_key, submit.uid, [3], FINISHED)
        await asyncio.to_thread(first.endpoint.close)
        ids: dict[int, list[int]] = {0: [], 1: [], 2: []}
        n_terminals = 0
        while n_terminals < 3:
            for output in await outputs(channel):
                assert output.uid.attempt == 0
                ids[output.uid.counter] += output.ids
                n_terminals += output.terminal is not None
                assert output.terminal in (None, FINISHED)
        assert ids == {0: [1, 2], 1: [3], 2: [3]}


async def test_a_request_whose_client_left_before_it_was_read_is_taken_back(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway, max_open=1) as engine:
        channel, key = await line(gateway, engine, 1)
        for counter in range(3):
            await channel.send(request(Uid(1, counter)))
        assert (await engine.submit())[1].uid.counter == 0
        await channel.send(Abort(Uid(1, 1), AbortReason.CLIENT_GONE))
        [output] = await outputs(channel)
        assert output.terminal == Aborted(AbortReason.CLIENT_GONE)
        await gateway.connect(engine.name)  # what was sent before has been carried out by then
        engine.answer(key, Uid(1, 0), [1], FINISHED)
        assert (await engine.submit())[1].uid.counter == 2


@pytest.mark.long
async def test_a_request_that_three_engines_died_with_fails(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway) as first:
        channel, _ = await line(gateway, first, 1)
        await channel.send(request(Uid(1, 0)))
        await first.submit()
        async with site.engine(gateway) as second, site.engine(gateway) as third:
            engines = {engine.name: engine for engine in (second, third)}
            site.cut_off(first)
            for attempt in (1, 2):
                submits = [asyncio.create_task(engine.submit()) for engine in engines.values()]
                done, pending = await asyncio.wait(submits, return_when=asyncio.FIRST_COMPLETED)
                assert done.pop().result()[1].uid == Uid(1, 0, attempt)
                [holder] = [e for e, task in zip(list(engines.values()), submits, strict=True) if task.done()]
                for task in pending:
                    task.cancel()
                await asyncio.wait(pending) if pending else None
                del engines[holder.name]
                site.cut_off(holder)
            [output] = await outputs(channel)
            assert isinstance(output.terminal, Failed)


async def test_deadlines_go_on_in_the_stream(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway, max_open=1) as engine:
        channel, key = await line(gateway, engine, 1)
        await channel.send(request(Uid(1, 0), deadline_s=5.0))
        await channel.send(request(Uid(1, 1), deadline_s=5.0))
        assert (await engine.submit())[1].deadline_s == 5.0
        await engine.poll_for(0.5)
        engine.answer(key, Uid(1, 0), [1], FINISHED)
        deadline_s = (await engine.submit())[1].deadline_s
        assert deadline_s is not None
        assert 0.5 <= deadline_s < 4.6


async def test_garbage_in_a_stream_harms_nobody(site: Site) -> None:
    async with site.gateway() as gateway, site.engine(gateway) as engine:
        channel, key = await line(gateway, engine, 1)
        for name in site.redis.scan_iter("tribar:{site}:*"):
            if site.redis.type(name) == b"stream":
                site.redis.xadd(name, {"m": b"\xc1garbage"})
                site.redis.xadd(name, {"other": b""})
        await channel.send(request(Uid(1, 0)))
        await engine.submit()
        engine.answer(key, Uid(1, 0), [1], FINISHED)
        assert (await outputs(channel))[0].terminal == FINISHED


async def test_without_redis_every_send_is_refused_at_once_and_what_is_open_fails() -> None:
    with valkey() as server, redis.Redis.from_url(server.url) as client:
        site = Site(server, client)
        async with site.gateway() as gateway, site.engine(gateway) as engine:
            channel, key = await line(gateway, engine, 1)
            await channel.send(request(Uid(1, 0)))
            await engine.submit()
            await gateway.connect(engine.name)  # the answer to the Submit is here by then
            server.kill()
            await until(lambda: not gateway.engines, gateway)
            with pytest.raises(Unavailable, match="Redis is away"):
                await channel.send(request(Uid(1, 1)))
            with pytest.raises(Unavailable, match="Redis"):
                await asyncio.wait_for(channel.receive(), 3 * LIVENESS_S)
            assert (key, None) in await engine.poll_for(2 * LIVENESS_S)
            server.start()
            await until(lambda: bool(gateway.engines), gateway)
            [engine.name] = gateway.engines
            await line(gateway, engine, 2)


async def test_a_cut_connection_loses_nothing(site: Site) -> None:
    """All of them are cut by the server, which goes on: requests, output and the order of both survive."""
    async with site.gateway() as gateway, site.engine(gateway) as engine:
        channel, key = await line(gateway, engine, 1)
        await channel.send(request(Uid(1, 0)))
        await engine.submit()
        ids: list[int] = []
        for step in range(6):
            if step % 2:
                site.redis.client_kill_filter(_type="normal", skipme=True)
            engine.answer(key, Uid(1, 0), [step])
            await engine.poll_for(0.3)
        engine.answer(key, Uid(1, 0), [], FINISHED)
        polling = asyncio.create_task(engine.poll_for(1.0))
        terminal = None
        while terminal is None:
            for output in await outputs(channel):
                ids += output.ids
                terminal = output.terminal
        assert (ids, terminal) == ([0, 1, 2, 3, 4, 5], FINISHED)
        await polling


@pytest.mark.long
async def test_a_redis_that_stands_still_is_away_too() -> None:
    """Connections stay open and nothing answers: the bound holds all the same, and the end is the same."""
    with valkey() as server, redis.Redis.from_url(server.url) as client:
        site = Site(server, client)
        async with site.gateway() as gateway, site.engine(gateway) as engine:
            channel, key = await line(gateway, engine, 1)
            await channel.send(request(Uid(1, 0)))
            await engine.submit()
            await gateway.connect(engine.name)  # the answer to the Submit is here by then
            server.freeze()
            try:
                await until(lambda: not gateway.engines, gateway)
                with pytest.raises(Unavailable, match="Redis is away"):
                    await channel.send(request(Uid(1, 1)))
                with pytest.raises(Unavailable, match="Redis"):
                    await asyncio.wait_for(channel.receive(), 4 * LIVENESS_S)
                assert (key, None) in await engine.poll_for(2 * LIVENESS_S)
            finally:
                server.thaw()
            await until(lambda: bool(set(gateway.engines) - {engine.name}), gateway)
            [engine.name] = set(gateway.engines) - {engine.name}
            await line(gateway, engine, 2)


@pytest.mark.long
async def test_a_full_redis_refuses_requests_and_delays_output() -> None:
    with valkey("--maxmemory-policy", "noeviction") as server, redis.Redis.from_url(server.url) as client:
        site = Site(server, client)
        async with site.gateway() as gateway, site.engine(gateway) as engine:
            channel, key = await line(gateway, engine, 1)
            await channel.send(request(Uid(1, 0)))
            await engine.submit()
            client.config_set("maxmemory", 1)
            await channel.send(request(Uid(1, 1)))
            [output] = await outputs(channel)
            assert isinstance(output.terminal, Failed)
            assert (output.uid, output.terminal.error) == (Uid(1, 1), "Overloaded")
            for step in range(3):
                engine.answer(key, Uid(1, 0), [step])
            assert (key, None) not in await engine.poll_for(2 * LIVENESS_S), "full is not away"
            client.config_set("maxmemory", 0)
            engine.answer(key, Uid(1, 0), [], FINISHED)
            polling = asyncio.create_task(engine.poll_for(1.0))
            ids: list[int] = []
            terminal = None
            while terminal is None:
                for output in await outputs(channel):
                    ids += output.ids
                    terminal = output.terminal
            assert (ids, terminal) == ([0, 1, 2], FINISHED)
            await polling
