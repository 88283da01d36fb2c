"""The semantic cache of several servers on one Valkey, which is killed, restarted and frozen."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.servers.valkey import Valkey, valkey
from tests.unit.gateway.semantic_cache.cache_rig import Rig, ask, told

from tribar.gateway.semantic_cache.freshness import Scope
from tribar.gateway.semantic_cache.generator import PAUSE_S
from tribar.stores.redis_keyvalue import RedisKeyValueStore
from tribar.stores.redis_pool import RedisPool, RedisPoolConfig

QUESTION = "how do I reset my password"
ALIKE = "how do I reset the password"


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with valkey() as server:
        yield server


@pytest.fixture
async def pool(server: Valkey) -> AsyncIterator[RedisPool]:
    pool = RedisPool(RedisPoolConfig(url=server.url, answer_timeout_s=0.2))
    yield pool
    with pool.client() as redis:
        await redis.flushall()
    await pool.close()


def rig_on(pool: RedisPool) -> Rig:
    return Rig(store=RedisKeyValueStore(pool, "cache:"))


async def stored(rig: Rig) -> None:
    """``QUESTION`` is answered, and its answer has arrived in Redis."""
    await rig.ask(ask(QUESTION))
    while not [key async for key in rig.store.keys("answer:")]:
        await rig.settle()


async def test_servers_share_answers_and_their_invalidation(pool: RedisPool) -> None:
    """BUG-098: what one invalidates the other does not give out any more."""
    one, two = rig_on(pool), rig_on(pool)
    await stored(one)
    assert (await two.ask(ask(QUESTION)))[0] == "exact"
    assert await two.cache.restore() == 1
    assert (await two.ask(ask(ALIKE)))[0] == "semantic"
    assert await one.administration.invalidate("a", Scope.TENANT)
    for question in (QUESTION, ALIKE):
        assert told(await two.generator.prepare(ask(question)))["x-tribar-cache"] == "miss"
    assert len(two.index) == 0


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_without_redis_requests_go_past_the_cache(pool: RedisPool, server: Valkey, how: str) -> None:
    """They wait once, not each of them; and nothing has to be restarted when it is back."""
    rig = rig_on(pool)
    await stored(rig)
    getattr(server, how)()
    try:
        for _ in range(3):
            assert (await rig.ask(ask(QUESTION))) == ("bypass", "An answer.")
    finally:
        server.start() if how == "kill" else server.thaw()
    rig.clock.now_s += PAUSE_S
    assert (await rig.ask(ask(QUESTION)))[0] == ("miss" if how == "kill" else "exact")


async def test_an_answer_that_cannot_be_stored_is_given_all_the_same(pool: RedisPool, server: Valkey) -> None:
    rig = rig_on(pool)
    prepared = await rig.generator.prepare(ask(QUESTION))
    server.kill()
    try:
        assert [delta async for delta in rig.generator.generate(prepared)][-1].finish is not None
        while rig.generator._keeping or len(rig.generator._flights):
            await rig.settle()
    finally:
        server.start()
    del prepared
    assert (await rig.ask(ask(QUESTION)))[0] == "miss"
