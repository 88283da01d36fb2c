"""``tribar keys new >> FILE``: the key is seen, the entry is filed."""

from pathlib import Path

import pytest

from tribar.app.api_keys import ApiKeys
from tribar.app.cli import main


def test_a_new_key_is_valid_once_its_entry_is_filed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.toml"
    made = []
    with file.open("w") as out:
        for tenant in ("alice", "bob"):
            with pytest.raises(SystemExit) as ended:
                main(["keys", "new", "--tenant", tenant])
            assert ended.value.code == 0
            printed = capsys.readouterr()
            out.write(printed.out)
            made.append(printed.err.split()[-1])
    assert all(key.startswith("sk-tribar-") and key not in file.read_text() for key in made)
    keys = ApiKeys(file)
    assert [keys.tenant_of(key.encode()) for key in made] == ["alice", "bob"]


def test_a_name_that_no_tenant_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["keys", "new", "--tenant", 'a"\nhash = "x'])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.startswith("error: --tenant: a tenant is")) == ("", True)
