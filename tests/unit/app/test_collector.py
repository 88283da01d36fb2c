import gc
from collections.abc import Iterator

import pytest

from tribar.app.collector import settle_collector


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_exists_is_left_alone_and_new_cycles_are_still_found() -> None:
    lasting = Knot()
    settle_collector()
    assert gc.get_freeze_count() > 0
    assert all(one is not lasting for one in gc.get_objects())
    knot = Knot()
    assert any(one is knot for one in gc.get_objects())
    gc.collect()
    del knot
    assert gc.isenabled()
    assert gc.collect() > 0
