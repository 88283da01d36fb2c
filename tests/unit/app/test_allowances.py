from pathlib import Path
from typing import Any

import pytest

from tribar.app.allowances import read_allowance, read_rules
from tribar.app.api_keys import ApiKeys, digest_of
from tribar.app.settings import load_config
from tribar.core.errors import InvalidRequest
from tribar.gateway.key_id import key_id
from tribar.gateway.limits.rules import Allowance, Rule

KEY = "sk-tribar-0123456789"


def test_tables_of_the_settings_file_become_rules(tmp_path: Path) -> None:
    path = tmp_path / "tribar.toml"
    path.write_text(
        '[server]\nport = 1\n\n[[limits]]\ntenant = "*"\ntokens_per_day = 5\n\n[[limits]]\nrequests_per_minute = 1\n'
    )
    config = load_config({}, {}, path)
    assert config.server.port == 1
    assert list(read_rules(config.lists["limits"])) == [
        Rule(allowance=Allowance(tokens_per_day=5), tenant="*"),
        Rule(allowance=Allowance(requests_per_minute=1)),
    ]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([{"tenant": "a"}], "limits nothing: it needs one of requests_per_minute"),
        ([{"tokens_per_day": 0}], r"\[\[limits\]\] 1: tokens_per_day must be a whole number from 1"),
        ([{"tokens_per_day": True}], "whole number"),
        ([{"tokens_per_day": 1.5}], "whole number"),
        ([{"tokens_per_hour": 1}], "unknown key tokens_per_hour"),
        ([{"tenant": "", "tokens_per_day": 1}], 'tenant must be a name or "\\*"'),
        ([{"key": "k", "tokens_per_day": 1}], "stand in its entry of the keys file"),
        (
            [{"tenant": "a", "tokens_per_day": 1}, {"tenant": "a", "requests_per_day": 1}],
            "the same as .* 1: make it one",
        ),
    ],
)
def test_mistakes_are_named(tables: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        list(read_rules(tables))


def test_limits_that_are_no_array_of_tables(tmp_path: Path) -> None:
    path = tmp_path / "tribar.toml"
    path.write_text("[limits]\ntokens_per_day = 5\n")
    with pytest.raises(InvalidRequest, match=r"limits is written as tables: \[\[limits\]\]"):
        load_config({}, {}, path)


def test_a_keys_own_limits_come_and_go_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    entry = f'[[keys]]\ntenant = "a"\nhash = "sha256:{digest_of(KEY.encode()).hex()}"\n'
    path.write_text(f"{entry}requests_per_minute = 7\n")
    keys = ApiKeys(path)
    named = key_id(KEY.encode())
    assert keys.tenant_of(KEY.encode()) == "a"
    assert keys.allowance_of(named) == Allowance(requests_per_minute=7)
    path.write_text(entry)
    keys.reload()
    assert keys.allowance_of(named) is None
    path.write_text(f"{entry}requests_per_minute = -1\n")
    with pytest.raises(InvalidRequest, match="entry 1: requests_per_minute must be"):
        ApiKeys(path)


def test_a_table_without_limits_allows_everything() -> None:
    assert read_allowance({"tenant": "a"}, "here", "limits") is None
