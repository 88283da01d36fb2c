"""Where settings come from: flags, then the environment, then a file, then the defaults.

A file is TOML with one table per room::

    [engine]
    max_num_seqs = 32
    kv_cache_memory = "2GiB"

and arrays of tables where there may be any number of a thing (``[[limits]]``).

The environment variable of ``max_num_seqs`` is ``TRIBAR_MAX_NUM_SEQS``, its flag ``--max-num-seqs``.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tribar.app.api_keys import KEY_VARIABLES
from tribar.app.config import (
    CacheConfig,
    ClusterConfig,
    EngineConfig,
    LimitingConfig,
    ModelConfig,
    ModelServerConfig,
    PoolConfig,
    ServeConfig,
    ServerConfig,
    StoresConfig,
)
from tribar.app.files import read_toml
from tribar.app.option_kinds import Kind
from tribar.app.pool_tables import TABLES, PoolTables, take_pool_tables
from tribar.core.errors import InvalidRequest

ROOMS: dict[str, type[Any]] = {
    "model": ModelConfig,
    "engine": EngineConfig,
    "modelserver": ModelServerConfig,
    "pool": PoolConfig,
    "server": ServerConfig,
    "stores": StoresConfig,
    "cluster": ClusterConfig,
    "limiting": LimitingConfig,
    "cache": CacheConfig,
}

LISTS = ("limits",)
"""Arrays of tables in the file, read by those who use them."""

VARIABLE_PREFIX = "TRIBAR_"
OTHER_VARIABLES = frozenset({"TRIBAR_CONFIG", "TRIBAR_CACHE", "TRIBAR_CPU_LEVEL", *KEY_VARIABLES})
"""Variables with our prefix that are read elsewhere: the file's path, the model cache (``runtime/sources``), the
instructions that the native kernels may use (``native/src/kernels.cpp``), and API keys (``app/api_keys.py``), which
have no flags because everybody on a machine can read the command lines of its processes."""

SERVICE_LINK = re.compile(r"TRIBAR_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
"""Kubernetes describes a service named tribar to every pod in such variables; they are not settings of ours
(``TRIBAR_PORT`` is one of both kinds: theirs is a URL)."""


@dataclass(frozen=True, slots=True)
class Option:
    """One setting as declared in ``app/config.py``. ``key`` names it outside, ``field_name`` inside its room."""

    key: str
    field_name: str
    room: str
    kind: Kind
    default: Any
    help: str

    @property
    def flag(self) -> str:
        """``--key-with-hyphens``."""
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        """``TRIBAR_KEY``."""
        return VARIABLE_PREFIX + self.key.upper()


def options() -> dict[str, Option]:
    """Every option by its key, in the order of declaration."""
    found = {}
    for room, cls in ROOMS.items():
        for item in fields(cls):
            meta = item.metadata
            key = meta["key"] or item.name
            found[key] = Option(key, item.name, room, meta["kind"], item.default, meta["help"])
    return found


def nearest(word: str, words: Iterable[str]) -> str:
    """``"; did you mean ...?"`` where one of ``words`` looks like ``word``, else nothing."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def load_config(flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None) -> ServeConfig:
    """The composed settings.

    ``flags`` holds what was given on the command line (text, or booleans for switches) by key; None is "not given".
    Raises ``InvalidRequest`` naming the flag, the variable, or the file and its key.
    """
    document = {} if file is None else read_toml(file, "config")
    lists = {name: _list(file, name, document.pop(name)) for name in LISTS if name in document}
    tables = PoolTables() if file is None else take_pool_tables(document, file)
    values = _from_file(file, document) if file is not None else {}
    values |= _from_environment(environ)
    for key, value in flags.items():
        if value is not None:
            values[key] = _read(options()[key], value, options()[key].flag)
    return replace(_compose(values, lists), pool_tables=tables if tables.upstreams else PoolTables())


def config_from_keywords(keywords: Mapping[str, object]) -> ServeConfig:
    """The same from Python values (``tribar.LLM(...)``): neither file nor environment is read."""
    known = options()
    values = {}
    for key, value in keywords.items():
        if key not in known:
            raise InvalidRequest(f"unknown option {key!r}{nearest(key, known)}", param=key)
        if value is not None:
            values[key] = _checked(known[key].kind.check, value, key)
    return _compose(values)


def _compose(
    values: Mapping[str, object], lists: Mapping[str, Sequence[Mapping[str, object]]] = MappingProxyType({})
) -> ServeConfig:
    by_room: dict[str, dict[str, Any]] = {room: {} for room in ROOMS}
    for key, option in options().items():
        if key in values:
            by_room[option.room][option.field_name] = values[key]
    return ServeConfig(lists=lists, **{room: cls(**by_room[room]) for room, cls in ROOMS.items()})


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    by_variable = {option.variable: option for option in options().values()}
    values = {}
    for name in sorted(environ):
        if not name.startswith(VARIABLE_PREFIX) or name in OTHER_VARIABLES:
            continue
        if SERVICE_LINK.fullmatch(name) and (name not in by_variable or "://" in environ[name]):
            continue
        option = by_variable.get(name)
        if option is None:
            hint = nearest(name, [*by_variable, *OTHER_VARIABLES])
            raise InvalidRequest(f"unknown environment variable {name}{hint}", param=name)
        values[option.key] = _read(option, environ[name], name)
    return values


def _list(path: Path | None, name: str, value: object) -> Sequence[Mapping[str, object]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidRequest(f"{path}: {name} is written as tables: [[{name}]]", param=name)
    return value


def _from_file(path: Path, document: Mapping[str, Any]) -> dict[str, object]:
    known = options()
    values: dict[str, object] = {}
    for room, table in document.items():
        if room in known and room not in ROOMS:
            raise InvalidRequest(f"{path}: {room} belongs in the table [{known[room].room}]", param=room)
        if room not in ROOMS:
            known_tables = [*ROOMS, *LISTS, *TABLES]
            raise InvalidRequest(f"{path}: unknown table [{room}]{nearest(room, known_tables)}", param=room)
        if not isinstance(table, dict):
            raise InvalidRequest(f"{path}: [{room}] must be a table, got {table!r}", param=room)
        for key, value in table.items():
            name = f"{room}.{key}"
            if key in known and known[key].room != room:
                raise InvalidRequest(f"{path}: {key} belongs in the table [{known[key].room}]", param=name)
            if key not in known:
                hint = nearest(name, [f"{option.room}.{option.key}" for option in known.values()])
                raise InvalidRequest(f"{path}: unknown key {name}{hint}", param=name)
            values[key] = _checked(known[key].kind.check, value, f"{path}: {name}")
    return values


def _read(option: Option, value: object, where: str) -> object:
    if isinstance(value, str):
        return _checked(option.kind.parse, value, where)
    return _checked(option.kind.check, value, where)


def _checked(read: Callable[[Any], object], value: object, where: str) -> object:
    try:
        return read(value)
    except ValueError as error:
        raise InvalidRequest(f"{where}: {error}", param=where) from error
