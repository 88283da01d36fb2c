"""Our server's answers are the real Triton's: every case, compared with what was recorded from it."""

from collections.abc import Iterator

import pytest
from tests.differential import batching_script, fixtures
from tests.differential.case import Case
from tests.differential.cases import CASES_BY_SUBJECT, fatal
from tests.differential.compare import difference_lines
from tests.differential.differences import JUSTIFIED
from tests.differential.observe import Answer
from tests.differential.play import Addresses, play
from tests.differential.served import serving_repository

CASES = [(subject, case) for subject, cases in CASES_BY_SUBJECT.items() for case in cases]


@pytest.fixture(scope="module")
def addresses() -> Iterator[Addresses]:
    with serving_repository() as found:
        yield found


@pytest.mark.parametrize(("subject", "case"), CASES, ids=lambda value: getattr(value, "name", value))
def test_answers_equal_the_recorded_ones(subject: str, case: Case, addresses: Addresses) -> None:
    expect(case.name, difference_lines(fixtures.read(subject)[case.name], play(case, addresses)))


@pytest.mark.parametrize(("case", "expected"), fatal.CASES, ids=lambda value: getattr(value, "name", ""))
def test_what_ends_the_real_server_is_answered(case: Case, expected: list[Answer], addresses: Addresses) -> None:
    expect(case.name, difference_lines(expected, play(case, addresses)))


@pytest.mark.parametrize("name", batching_script.SCRIPTS)
def test_batches_equal_the_recorded_ones(name: str, addresses: Addresses) -> None:
    answered = batching_script.play_script(batching_script.SCRIPTS[name], addresses)
    expect(name, difference_lines(fixtures.read("batching")[name], [answered]))


def expect(name: str, found: str) -> None:
    """No difference, or, where it is justified, one."""
    if name in JUSTIFIED:
        assert found, f"{name} no longer differs: take it off the list"
    else:
        assert not found, found
