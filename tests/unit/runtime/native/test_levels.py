"""Which kernels run: the best of this CPU, or a lower level on demand; never more than it has."""

import pytest
from tests.contract.runner_factories import RUNNER_FACTORIES

from tribar.core.errors import InvalidRequest
from tribar.runtime.native._native import kernels


def test_the_best_level_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIBAR_CPU_LEVEL", raising=False)
    assert kernels.levels()[-1] == "portable"
    assert kernels.level_for("") == kernels.levels()[0]


def test_the_variable_lowers_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    for level in kernels.levels():
        monkeypatch.setenv("TRIBAR_CPU_LEVEL", level)
        assert kernels.level_for("") == level


def test_an_unknown_level_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"CPU level 'avx9000' is unknown: choose one of .*portable"):
        kernels.level_for("avx9000")
    monkeypatch.setenv("TRIBAR_CPU_LEVEL", "fast")
    with pytest.raises(ValueError, match="TRIBAR_CPU_LEVEL 'fast' is unknown: choose one of"):
        kernels.level_for("")


def test_a_runner_says_so_as_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine then ends with one line, and is not started again."""
    monkeypatch.setenv("TRIBAR_CPU_LEVEL", "fast")
    with pytest.raises(InvalidRequest, match="TRIBAR_CPU_LEVEL 'fast' is unknown: choose one of"):
        RUNNER_FACTORIES["native-1-thread"]().load()
