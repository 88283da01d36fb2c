"""Our server's answers are the real Triton's: every case, compared with what was recorded from it."""

from collections.abc import Iterator

import pytest
from tests.differential import batching_script, fixtures
from tests.differential.case import Case
from tests.differential.cases import CASES_BY_SUBJECT, fatal
from tests.differential.compare import difference_lines, differences
from tests.differential.differences import difference_of
from tests.differential.observe import Answer
from tests.differential.play import play
from tests.differential.served import ServedRepository, serving_repository

CASES = [(subject, case) for subject, cases in CASES_BY_SUBJECT.items() for case in cases]


@pytest.fixture(scope="module")
def served() -> Iterator[ServedRepository]:
    with serving_repository() as found:
        yield found


@pytest.mark.parametrize(("subject", "case"), CASES, ids=lambda value: getattr(value, "name", value))
def test_answers_equal_the_recorded_ones(subject: str, case: Case, served: ServedRepository) -> None:
    expect(case.name, fixtures.read(subject)[case.name], play(case, served.has_models_of(case)))


@pytest.mark.parametrize(("case", "expected"), fatal.CASES, ids=lambda value: getattr(value, "name", ""))
def test_what_ends_the_real_server_is_answered(case: Case, expected: list[Answer], served: ServedRepository) -> None:
    expect(case.name, expected, play(case, served.has_models_of(case)))


@pytest.mark.parametrize("name", batching_script.SCRIPTS)
def test_batches_equal_the_recorded_ones(name: str, served: ServedRepository) -> None:
    script = batching_script.SCRIPTS[name]
    answered = batching_script.play_script(script, served.has(script.model))
    expect(name, fixtures.read("batching")[name], [answered])


def expect(name: str, recorded: list[Answer], answered: list[Answer]) -> None:
    """No difference, or, where there is one on purpose, that one."""
    found = difference_lines(recorded, answered)
    on_purpose = difference_of(name)
    if on_purpose is None:
        assert not found, found
    else:
        assert found, f"{name} no longer differs: take it off the list"
        pairs = zip(recorded, answered, strict=True)
        results = {answer.get("status", answer.get("code")) for one, answer in pairs if differences(one, answer)}
        assert results <= on_purpose.answers, found
