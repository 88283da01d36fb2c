"""Precedence and errors of the settings' sources."""

import itertools
from pathlib import Path

import pytest

from tribar.app.config import ServeConfig
from tribar.app.option_kinds import Number
from tribar.app.settings import ROOMS, config_from_keywords, load_config, options
from tribar.core.errors import InvalidRequest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tribar.toml"


def test_without_any_source_the_defaults_hold() -> None:
    assert load_config({}, {}) == ServeConfig()


@pytest.mark.parametrize("present", list(itertools.product((True, False), repeat=3)))
def test_flags_beat_the_environment_beats_the_file_beats_the_default(file: Path, present: tuple[bool, ...]) -> None:
    in_flags, in_environ, in_file = present
    file.write_text("[server]\nport = 3\n" if in_file else "")
    config = load_config(
        {"port": "1" if in_flags else None}, {"TRIBAR_PORT": "2"} if in_environ else {"PATH": "x"}, file
    )
    expected = 1 if in_flags else 2 if in_environ else 3 if in_file else 8000
    assert config.server.port == expected


def test_every_source_can_set_every_option(file: Path) -> None:
    """One declaration is enough for all of them."""
    texts = {
        "TEXT": "x",
        "DIRS": "/a,b",
        "NAMES": "a,b",
        "ORIGINS": "https://a.example,*",
        "MODEL": "m",
        "NAME": "n",
        "DEVICE": "cuda",
        "ADDRESS": "::1",
        "BYTES": "5MiB",
    }
    for option in options().values():
        other = {"INTEGER": "7", "BOOLEAN": "false" if option.default else "true"}
        if isinstance(option.kind, Number):
            other["NUMBER"] = f"{option.kind.minimum + (option.kind.maximum - option.kind.minimum) / 7:.5g}"
        text = texts.get(option.kind.metavar) or other.get(option.kind.metavar, option.kind.metavar.split("|")[-1])
        from_flag = load_config({option.key: text}, {})
        from_environ = load_config({}, {option.variable: text})
        plain = text if option.kind.metavar in {"INTEGER", "NUMBER", "BOOLEAN"} else f'"{text}"'
        file.write_text(f"[{option.room}]\n{option.key} = {plain}\n")
        assert from_flag == from_environ == load_config({}, {}, file)
        assert from_flag != ServeConfig()


def test_keys_flags_and_variables_are_unique() -> None:
    known = options()
    assert len(known) == sum(len(cls.__dataclass_fields__) for cls in ROOMS.values())
    assert len({option.flag for option in known.values()}) == len(known)
    assert all(option.help.endswith(".") for option in known.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engine]\nmax_num_seq = 3\n", "unknown key engine.max_num_seq; did you mean engine.max_num_seqs?"),
        ("[engine]\nport = 3\n", r"port belongs in the table \[server\]"),
        ("[engines]\nx = 1\n", r"unknown table \[engines\]; did you mean engine?"),
        ("port = 3\n", r"port belongs in the table \[server\]"),
        ("engine = 3\n", r"\[engine\] must be a table"),
        ("[server]\nport = '3'\n", "server.port: expected a whole number from 0 to 65535, got '3'"),
        ("[server]\nport = true\n", "server.port: expected a whole number"),
        ("[engine]\nenable_prefix_caching = 1\n", "expected true or false"),
        ("[engine\n", "line 1"),
        ("a = 1\na = 2\n", "line 2"),
    ],
)
def test_a_bad_file_is_refused_naming_file_and_key(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=message) as caught:
        load_config({}, {}, file)
    assert str(file) in str(caught.value)


def test_unreadable_files_are_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(InvalidRequest, match="No such file"):
        load_config({}, {}, tmp_path / "absent.toml")
    with pytest.raises(InvalidRequest, match="directory"):
        load_config({}, {}, tmp_path)
    file.write_bytes(b"# \xff\xfe")
    with pytest.raises(InvalidRequest, match="not UTF-8 at byte 2"):
        load_config({}, {}, file)
    file.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(InvalidRequest, match="larger than"):
        load_config({}, {}, file)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TRIBAR_MAX_NUM_SEQ", "3", "TRIBAR_MAX_NUM_SEQ; did you mean TRIBAR_MAX_NUM_SEQS?"),
        ("TRIBAR_CONFG", "3", "did you mean TRIBAR_CONFIG?"),
        ("TRIBAR_PORT", "eight", "TRIBAR_PORT: expected a whole number"),
        ("TRIBAR_DRAIN_TIMEOUT", "inf", "TRIBAR_DRAIN_TIMEOUT: expected a number"),
        ("TRIBAR_KV_CACHE_MEMORY", "4 apples", "TRIBAR_KV_CACHE_MEMORY: expected a size"),
        ("TRIBAR_MODEL", "", "TRIBAR_MODEL: expected a non-empty"),
    ],
)
def test_a_bad_variable_is_refused_by_name(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        load_config({}, {name: value})


def test_the_variables_of_a_kubernetes_service_named_tribar_are_not_ours() -> None:
    environ = {
        "TRIBAR_SERVICE_HOST": "10.0.0.1",
        "TRIBAR_SERVICE_PORT": "8000",
        "TRIBAR_SERVICE_PORT_HTTP": "8000",
        "TRIBAR_PORT": "tcp://10.0.0.1:8000",
        "TRIBAR_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "TRIBAR_PORT_8000_TCP_ADDR": "10.0.0.1",
    }
    assert load_config({}, environ | {"TRIBAR_CACHE": "/c", "TRIBAR_CONFIG": "x"}) == ServeConfig()


def test_a_bad_flag_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="--max-num-seqs: expected a whole number from 1 to 4096, got '0'"):
        load_config({"max_num_seqs": "0"}, {})


def test_keywords_are_python_values() -> None:
    config = config_from_keywords({"model": "m.gguf", "kv_cache_memory": "1GiB", "max_num_seqs": 3, "threads": None})
    assert (config.model.model, config.engine.kv_cache_memory_bytes, config.engine.max_num_seqs) == (
        "m.gguf",
        1 << 30,
        3,
    )
    with pytest.raises(InvalidRequest, match="unknown option 'max_seqs'; did you mean max_num_seqs"):
        config_from_keywords({"max_seqs": 3})
    with pytest.raises(InvalidRequest, match="max_num_seqs: expected a whole number"):
        config_from_keywords({"max_num_seqs": "3"})
