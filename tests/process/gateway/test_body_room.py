"""All bodies together are bounded, whatever each of them may be."""

import contextlib
import http.client

from tests.process.gateway.served import Served, post, serve

from tribar.core.fake_generator import FakeGenerator, speak
from tribar.gateway.config import GatewayConfig

BODY = b'{"model":"fake","prompt":"x"}' + b" " * 900_000


def status_of(served: Served) -> tuple[int, str | None]:
    """Status and Retry-After of one more request."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", BODY, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers["retry-after"]


def test_bodies_that_arrive_at_the_same_time_share_one_room() -> None:
    """BUG-084: half-sent bodies fill it; one more is 503 with Retry-After; those that leave make room again."""
    config = GatewayConfig(max_body_bytes=1_000_000, max_all_bodies_bytes=2_000_000)
    half = post("/v1/completions", BODY)[:-1]
    with serve(config=config, fake=FakeGenerator(speak("ok"))) as served:
        with contextlib.ExitStack() as held:
            while status_of(served) == (200, None):
                held.enter_context(served.connect(half))
            assert status_of(served) == (503, "1")
        while status_of(served) == (503, "1"):  # until it has noticed that they left
            pass
        assert status_of(served) == (200, None)
