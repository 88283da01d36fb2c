"""Seeds of the choices of one request."""

from hypothesis import given
from hypothesis import strategies as st

from tribar.core.sampling.seeds import choice_seed

uint64s = st.integers(0, 2**64 - 1)


def test_known_answers_of_splitmix64() -> None:
    """First outputs of the public-domain C generator (Vigna, splitmix64.c) from state 0 and from 1234567."""
    assert [choice_seed(0, i) for i in (1, 2, 3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [choice_seed(1234567, i) for i in (1, 2)] == [6457827717110365317, 3203168211198807973]


@given(uint64s)
def test_choice_0_keeps_the_seed(seed: int) -> None:
    assert choice_seed(seed, 0) == seed


@given(uint64s)
def test_choices_of_one_request_differ(seed: int) -> None:
    seeds = [choice_seed(seed, i) for i in range(128)]
    assert len(set(seeds)) == 128
    assert all(0 <= s < 2**64 for s in seeds)
