import asyncio

import pytest
from tests.unit.engine.client_rig import CARD

from tribar.core.errors import Overloaded, Unavailable
from tribar.core.requests import ModelCard
from tribar.engine import connection as connection_module
from tribar.engine.connection import Connection
from tribar.wire.in_process import InProcessEndpoint
from tribar.wire.messages import Ready, Stats


def ignore(_message: ModelCard | Stats) -> None:
    pass


async def test_nothing_opens_on_a_line_that_has_ended() -> None:
    """Whoever still holds the connection must not wait for an answer that cannot come."""
    endpoint = InProcessEndpoint()
    connection = Connection(await endpoint.connect(), ignore, ignore)
    endpoint.close()
    with pytest.raises(Unavailable):
        await connection.serve()
    with pytest.raises(Unavailable):
        connection.open()


async def test_the_number_of_open_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_OPEN", 3)
    endpoint = InProcessEndpoint()
    connection = Connection(await endpoint.connect(), ignore, ignore)
    uids = [connection.open()[0] for _ in range(3)]
    assert len(set(uids)) == 3
    with pytest.raises(Overloaded):
        connection.open()
    connection.close(uids[0])
    assert connection.open()[0] not in uids
    endpoint.close()


async def test_every_line_introduces_itself_under_another_number() -> None:
    endpoint = InProcessEndpoint()
    numbers = set()
    for _ in range(20):
        connection = Connection(await endpoint.connect(), ignore, ignore)
        serving = asyncio.create_task(connection.serve())
        [(key, _)] = await asyncio.to_thread(endpoint.poll, 10.0)
        endpoint.send(key, Ready(CARD))
        numbers.add(connection.open()[0].client)
        serving.cancel()
        await asyncio.wait([serving])
        assert await asyncio.to_thread(endpoint.poll, 10.0) == [(key, None)]
    assert len(numbers) == 20
