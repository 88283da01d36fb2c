"""Our server's answers are the real Triton's: every case, compared with what was recorded from it."""

from collections.abc import Iterator

import pytest
from tests.differential import batching_script, fixtures
from tests.differential.case import Case
from tests.differential.cases import CASES_BY_SUBJECT
from tests.differential.compare import differences
from tests.differential.differences import JUSTIFIED
from tests.differential.play import Addresses, play
from tests.differential.served import serving_repository

CASES = [(subject, case) for subject, cases in CASES_BY_SUBJECT.items() for case in cases]


@pytest.fixture(scope="module")
def addresses() -> Iterator[Addresses]:
    with serving_repository() as found:
        yield found


@pytest.mark.parametrize(("subject", "case"), CASES, ids=lambda value: getattr(value, "name", value))
def test_answers_equal_the_recorded_ones(subject: str, case: Case, addresses: Addresses) -> None:
    recorded = fixtures.read(subject)[case.name]
    answered = play(case, addresses)
    found = [
        f"call {number}: {line}"
        for number, (one, other) in enumerate(zip(recorded, answered, strict=True))
        for line in differences(one, other)
    ]
    if case.name in JUSTIFIED:
        assert found, f"{case.name} no longer differs: take it off the list"
    else:
        assert not found, "\n".join(found)


@pytest.mark.parametrize("name", batching_script.SCRIPTS)
def test_batches_equal_the_recorded_ones(name: str, addresses: Addresses) -> None:
    (recorded,) = fixtures.read("batching")[name]
    found = differences(recorded, batching_script.play_script(batching_script.SCRIPTS[name], addresses))
    if name in JUSTIFIED:
        assert found, f"{name} no longer differs: take it off the list"
    else:
        assert not found, "\n".join(found)
