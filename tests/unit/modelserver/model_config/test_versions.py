"""BUG-078: odd names of version directories, and the policies."""

from pathlib import Path

import pytest

from tribar.core.errors import InvalidRequest
from tribar.modelserver.model_config import ignored_directories, parse_config, version_directories, versions_served

ODD = [
    "1",
    "2",
    "10",
    "01",
    "-1",
    "0",
    "abc",
    "2.bak",
    "9" * 20,
    "９",
    "+3",
    "4 ",
    ".git",
    "warmup",
    "9223372036854775807",
]


def test_bug_078_only_plain_numbers_are_versions(tmp_path: Path) -> None:
    for name in ODD:
        (tmp_path / name).mkdir()
    (tmp_path / "3").write_text("a file")
    assert version_directories(tmp_path) == [0, 1, 2, 10, 2**63 - 1]
    assert ignored_directories(tmp_path) == sorted(["01", "-1", "abc", "2.bak", "9" * 20, "９", "+3", "4 "])
    assert version_directories(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("latest { num_versions: 2 }", [2, 10]),
        ("latest { num_versions: 1 }", [10]),
        ("latest { num_versions: 99 }", [1, 2, 10]),
        ("all { }", [1, 2, 10]),
        ("", [1, 2, 10]),
        ("specific { versions: [ 10, 1, 1 ] }", [1, 10]),
    ],
)
def test_bug_078_versions_are_ordered_as_numbers(policy: str, served: list[int]) -> None:
    config = parse_config(f"version_policy {{ {policy} }}", file="f")
    assert versions_served(config.version_policy, [10, 2, 1], name="m") == served


@pytest.mark.parametrize(
    ("policy", "available", "reason"),
    [
        (
            "specific { versions: [ 1, 9 ] }",
            [1, 2],
            "version_policy.specific.versions: no directory for version 9; .* 1, 2",
        ),
        ("specific { }", [1], "version_policy: serves no version"),
        ("latest { num_versions: 0 }", [1], "version_policy: serves no version; there are: 1"),
        ("latest { num_versions: 1 }", [], "the model has no version; put its files into a directory named 1"),
    ],
)
def test_bug_078_a_policy_that_cannot_be_met(policy: str, available: list[int], reason: str) -> None:
    config = parse_config(f"version_policy {{ {policy} }}", file="f")
    with pytest.raises(InvalidRequest, match=reason) as refused:
        versions_served(config.version_policy, available, name="m")
    assert "model 'm'" in refused.value.message
