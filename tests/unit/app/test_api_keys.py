"""Keys from files and the environment; nothing that goes wrong with them quotes one."""

import hashlib
import logging
import os
from pathlib import Path

import pytest

from tribar.app.api_keys import ApiKeys, digest_of, entry_for, keys_from, new_key
from tribar.app.files import MAX_FILE_BYTES
from tribar.core.errors import InvalidRequest

KEY = "secret-key-0123456789"
HASH = f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"


def keys_in(tmp_path: Path, text: str) -> ApiKeys:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    return ApiKeys(path)


def test_new_keys_are_long_and_differ() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(key.startswith("sk-tribar-") and len(key) == 53 for key in made)


def test_an_entry_lets_its_key_in_and_does_not_hold_it(tmp_path: Path) -> None:
    one, other = new_key(), new_key()
    entry = entry_for(one, "alice")
    assert one not in entry
    keys = keys_in(tmp_path, entry + "\n" + entry_for(other, None))
    assert keys.tenant_of(one.encode()) == "alice"
    assert keys.tenant_of(other.encode()) == f"key-{digest_of(other.encode()).hex()[:8]}"
    for wrong in (b"", one[:-1].encode(), b"x" * 2**20, one.upper().encode(), b"\xff\x00", entry.encode()):
        assert keys.tenant_of(wrong) is None


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    assert keys_in(tmp_path, "").tenant_of(KEY.encode()) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[keys]]\ntenant = 'a'", "entry 1: hash must be"),
        (f"[[keys]]\nhash = '{KEY}'", "entry 1: hash must be"),
        (f"[[keys]]\nhash = 'sha256:{KEY}'", "entry 1: hash must be"),
        ("[[keys]]\nhash = 5", "entry 1: hash must be"),
        (f"[[keys]]\nkey = '{KEY}'", "entry 1 may have tenant and hash only"),
        (f"[[keys]]\nhash = '{HASH}'\ntenant = ''", "entry 1: a tenant is"),
        (f"[[keys]]\nhash = '{HASH}'\ntenant = 'a b'", "entry 1: a tenant is"),
        (f"[[keys]]\nhash = '{HASH}'\ntenant = 5", "entry 1: a tenant is"),
        (f"[[keys]]\nhash = '{HASH}'\n" * 2, "the same key twice"),
        (f"keys = '{KEY}'", r"nothing but \[\[keys\]\] tables"),
        (f"keys = ['{KEY}']", "entry 1 may have"),
        (f"[[keys]]\nhash = '{HASH}'\n[other]", r"nothing but \[\[keys\]\] tables"),
        (f"[[keys]\nhash = '{KEY}'", "line 1"),
        ("\x00", "keys.toml"),
        ("x=" + "[" * 100_000, "keys.toml"),
    ],
)
def test_a_broken_file(tmp_path: Path, text: str, message: str) -> None:
    """BUG-088: each says where, and none quotes a key that was put in the wrong place."""
    with pytest.raises(InvalidRequest, match=message) as refused:
        keys_in(tmp_path, text)
    assert KEY not in refused.value.message
    assert "keys.toml" in refused.value.message


def test_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="No such file"):
        ApiKeys(tmp_path / "absent.toml")


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A pipe without a writer would hold up whoever opens it, a device never ends."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(InvalidRequest, match=f"{path}: not a regular file"):
            ApiKeys(path)
    with pytest.raises(InvalidRequest, match="Is a directory"):
        ApiKeys(tmp_path)
    (tmp_path / "large").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(InvalidRequest, match=f"larger than {MAX_FILE_BYTES} bytes"):
        ApiKeys(tmp_path / "large")


def test_emptying_the_file_takes_every_key_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = keys_in(tmp_path, entry_for(KEY, "a"))
    (tmp_path / "keys.toml").write_text("")
    keys.reload()
    assert keys.tenant_of(KEY.encode()) is None
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "every request is refused" in record.message


def test_a_pipe_in_the_place_of_the_file_changes_nothing(tmp_path: Path) -> None:
    keys = keys_in(tmp_path, entry_for(KEY, "a"))
    (tmp_path / "keys.toml").unlink()
    os.mkfifo(tmp_path / "keys.toml")
    keys.reload()
    assert keys.tenant_of(KEY.encode()) == "a"


def test_reading_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A revoked key is refused at once; a file that cannot be used changes nothing and is one line of the log."""
    one, two = new_key(), new_key()
    keys = keys_in(tmp_path, entry_for(one, "a"))
    (tmp_path / "keys.toml").write_text(entry_for(two, "b"))
    keys.reload()
    assert (keys.tenant_of(one.encode()), keys.tenant_of(two.encode())) == (None, "b")
    caplog.clear()
    for broken in ("[[keys", f"[[keys]]\nhash = '{one}'"):
        (tmp_path / "keys.toml").write_text(broken)
        keys.reload()
        assert (keys.tenant_of(one.encode()), keys.tenant_of(two.encode())) == (None, "b")
    (tmp_path / "keys.toml").unlink()
    keys.reload()
    assert keys.tenant_of(two.encode()) == "b"
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert one not in caplog.text


def test_keys_in_the_environment() -> None:
    """They are taken out of it: a child process does not get them."""
    environ = {"TRIBAR_API_KEYS": f"{KEY}1, alice:{KEY}2\n{KEY}3", "TRIBAR_API_KEY": f"bob:{KEY}4", "HOME": "/"}
    keys = keys_from(None, environ)
    assert keys is not None
    assert environ == {"HOME": "/"}
    tenants = [keys.tenant_of(f"{KEY}{i}".encode()) for i in range(1, 6)]
    assert tenants[1::2] == ["alice", "bob"]
    assert tenants[4] is None
    assert len(set(tenants)) == 5
    keys.reload()
    assert keys.tenant_of(f"{KEY}2".encode()) == "alice"


def test_without_keys_everybody_may_come_in(tmp_path: Path) -> None:
    assert keys_from(None, {}) is None
    (tmp_path / "keys.toml").write_text("")
    assert keys_from(str(tmp_path / "keys.toml"), {}) is not None


def test_file_and_environment_together(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry_for(KEY, "a"))
    both = keys_from(str(path), {"TRIBAR_API_KEY": f"b:{KEY}x"})
    assert both is not None
    assert (both.tenant_of(KEY.encode()), both.tenant_of(f"{KEY}x".encode())) == ("a", "b")
    with pytest.raises(InvalidRequest, match="the same key twice, for b and a"):
        keys_from(str(path), {"TRIBAR_API_KEY": f"b:{KEY}"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "is empty"),
        (" ,\n", "is empty"),
        ("short-key", "key 1 is shorter than 16"),
        (f"{KEY},a:", "key 2 is shorter than 16"),
        (f"{KEY}é", "not printable ASCII"),
        (f"a/b:{KEY}", "key 1: a tenant is"),
        (f":{KEY}", "key 1: a tenant is"),
        (f"{KEY} {KEY}", "the same key twice"),
    ],
)
def test_a_mistake_in_the_environment(value: str, message: str) -> None:
    """An empty variable is a mistake too: it must not open the server."""
    with pytest.raises(InvalidRequest, match=message) as refused:
        keys_from(None, {"TRIBAR_API_KEYS": value})
    assert "TRIBAR_API_KEYS" in refused.value.message
    assert KEY not in refused.value.message
