"""Limits as operators write them: in the entries of the keys file, and as ``[[limits]]`` tables of the settings.

::

    [[limits]]
    tenant = "*"                    # each tenant by itself; without it all of them together
    model = "smollm2"
    requests_per_minute = 600
    tokens_per_minute = 100_000
    concurrent_requests = 32
    requests_per_day = 100_000
    tokens_per_day = 20_000_000
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from tribar.core.errors import InvalidRequest
from tribar.gateway.limits.rules import EACH, Allowance, Rule

LIMITS = tuple(field.name for field in fields(Allowance))

MAX_LIMIT = 10**12
"""A count is a double in Redis' scripts, exact to 2^53."""


def read_allowance(table: Mapping[str, object], where: str, param: str) -> Allowance | None:
    """The limits among the keys of ``table``; None where it has none. Raises ``InvalidRequest`` naming the key."""
    given: dict[str, int] = {}
    for name in LIMITS:
        if name in table:
            value = table[name]
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_LIMIT:
                message = f"{where}: {name} must be a whole number from 1 to {MAX_LIMIT}, got {value!r}"
                raise InvalidRequest(message, param=param)
            given[name] = value
    return Allowance(**given) if given else None


def read_rules(tables: Sequence[Mapping[str, object]]) -> Iterable[Rule]:
    """The rules that the ``[[limits]]`` tables are. Raises ``InvalidRequest`` naming the table and what is wrong."""
    seen: dict[tuple[object, ...], int] = {}
    for number, table in enumerate(tables, 1):
        where = f"[[limits]] {number}"
        unknown = set(table) - {"key", "tenant", "model", *LIMITS}
        if unknown:
            raise InvalidRequest(f"{where}: unknown key {min(unknown)}", param="limits")
        selectors = {name: _selector(table, name, where) for name in ("key", "tenant", "model")}
        if selectors["key"] not in {None, EACH}:
            message = f'{where}: key can only be "*"; limits of one key stand in its entry of the keys file'
            raise InvalidRequest(message, param="limits")
        allowance = read_allowance(table, where, "limits")
        if allowance is None:
            raise InvalidRequest(f"{where} limits nothing: it needs one of {', '.join(LIMITS)}", param="limits")
        first = seen.setdefault(tuple(selectors.values()), number)
        if first != number:
            raise InvalidRequest(f"{where} is for the same as [[limits]] {first}: make it one", param="limits")
        yield Rule(allowance=allowance, **selectors)


def _selector(table: Mapping[str, object], name: str, where: str) -> str | None:
    value = table.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidRequest(f'{where}: {name} must be a name or "*", got {value!r}', param="limits")
    return value
