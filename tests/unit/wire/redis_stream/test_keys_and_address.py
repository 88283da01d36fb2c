import pytest

from tribar.core.errors import InvalidRequest
from tribar.wire.redis_stream.address import RedisAddress
from tribar.wire.redis_stream.keys import Keys


def test_all_keys_of_a_cluster_are_in_one_slot_and_under_one_prefix() -> None:
    keys = Keys("prod-1")
    names = [
        keys.engines,
        keys.salt,
        keys.engine("e"),
        keys.requests("e"),
        keys.control("e"),
        keys.output("g"),
    ]
    assert len(set(names)) == len(names)
    assert all(name.startswith("tribar:{prod-1}:") for name in names)


@pytest.mark.parametrize("name", ["", "a}b", "a:b", "a b", "x" * 65])
def test_a_name_that_could_be_mistaken_for_part_of_a_key_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Keys(name)
    assert caught.value.param == "cluster"


def test_an_address_is_shown_without_its_password() -> None:
    address = RedisAddress("rediss://user:secret@redis.example:6380/2?ssl_cert_reqs=none")
    assert address.shown == "rediss://redis.example:6380/2"
    assert (address.host, address.port, address.path) == ("redis.example", 6380, None)
    assert address.introduction() == [("AUTH", "user", "secret"), ("SELECT", "2"), ("PING",)]
    assert address.tls() is not None


def test_an_address_without_anything_is_the_local_one() -> None:
    address = RedisAddress("redis://")
    assert (address.host, address.port, address.introduction()) == ("localhost", 6379, [("PING",)])
    assert address.tls() is None
    assert RedisAddress("unix:///run/redis.sock?db=1").path == "/run/redis.sock"


@pytest.mark.parametrize("url", ["http://h", "redis://h:port/0", "h:6379", ""])
def test_what_is_no_address_is_refused_and_the_password_not_told(url: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RedisAddress(url)
    assert caught.value.param == "redis_url"
