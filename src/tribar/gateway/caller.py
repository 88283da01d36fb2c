"""What a request's head says about it, whatever its body asks for.

Whose it is, by when it has to be answered, and whether a stored answer would do.
"""

import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tribar.core.errors import DeadlineExceeded, InvalidRequest
from tribar.core.ports import Clock, TextGenerator
from tribar.core.requests import CacheMode, Delta, GenerateRequest, ModelCard, Prepared

DEADLINE_HEADER = "x-tribar-deadline-ms"
SHRINK_HEADER = "x-tribar-allow-smaller"
MAX_DEADLINE_MS = 3_600_000

_STRICTNESS = {mode: i for i, mode in enumerate(CacheMode)}


@dataclass(frozen=True, slots=True)
class Caller:
    """``tenant`` and ``key`` (an id, not the key itself) are empty where no keys are configured.

    ``expires_s`` is a monotonic time, None is "never". ``cache`` is what ``Cache-Control`` (RFC 9111, section 5.2.1)
    asks for: ``no-store`` goes past the cache, ``no-cache`` and ``max-age=0`` have the answer made anew.
    ``may_shrink``: a smaller model may answer under pressure.
    """

    tenant: str = ""
    expires_s: float | None = None
    key: str = ""
    cache: CacheMode = CacheMode.USE
    may_shrink: bool = False


def caller_of(scope: Mapping[str, Any], now_s: float) -> Caller:
    """The caller of the ASGI request that arrived at ``now_s``. Raises ``InvalidRequest`` naming the header."""
    expires_s = None
    if values := _values(scope, DEADLINE_HEADER):
        text = values[0]
        is_number = len(values) == 1 and text.isascii() and text.isdigit() and len(text) <= len(str(MAX_DEADLINE_MS))
        if not is_number or not 1 <= int(text) <= MAX_DEADLINE_MS:
            message = f"{DEADLINE_HEADER} must be one whole number from 1 to {MAX_DEADLINE_MS}"
            raise InvalidRequest(message, param=DEADLINE_HEADER, code="invalid_value")
        expires_s = now_s + int(text) / 1000
    state, may_shrink = scope["state"], _may_shrink(_values(scope, SHRINK_HEADER))
    cache = _cache_mode(scope["headers"])
    return Caller(state.get("tenant", ""), expires_s, state.get("key_id", ""), cache, may_shrink)


def _cache_mode(headers: Iterable[tuple[bytes, bytes]]) -> CacheMode:
    """Other directives than these ask for nothing that is not so anyway."""
    values = b",".join(value for name, value in headers if name == b"cache-control")
    if not values:
        return CacheMode.USE
    directives = {word.strip() for word in values.lower().split(b",")}
    if b"no-store" in directives:
        return CacheMode.BYPASS
    return CacheMode.REFRESH if directives & {b"no-cache", b"max-age=0"} else CacheMode.USE


def _values(scope: Mapping[str, Any], header: str) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header.encode()]


def _may_shrink(values: list[str]) -> bool:
    if not values:
        return False
    if len(values) > 1 or values[0] not in {"true", "false"}:
        raise InvalidRequest(f"{SHRINK_HEADER} must be true or false", param=SHRINK_HEADER, code="invalid_value")
    return values[0] == "true"


class OnBehalf:
    """A ``TextGenerator`` that asks ``generator`` for ``caller``.

    What is handed on carries the tenant, and as ``deadline_s`` what the time until then has left of the deadline. Among
    tenants nobody may put itself first: a ``priority`` below 0 counts as 0. Of what head and body say about stored
    answers the stricter one holds.
    """

    def __init__(self, generator: TextGenerator, caller: Caller, clock: Clock = time.monotonic) -> None:
        self._generator = generator
        self._caller = caller
        self._clock = clock

    def card(self) -> ModelCard:
        """See ``TextGenerator``."""
        return self._generator.card()

    async def prepare(self, request: GenerateRequest) -> Prepared:
        """See ``TextGenerator``. Raises ``DeadlineExceeded`` where the time is over before anything is generated."""
        self._check_time()
        caller = self._caller
        if _STRICTNESS[caller.cache] > _STRICTNESS[request.cache.mode]:
            request = replace(request, cache=replace(request.cache, mode=caller.cache))
        if caller.tenant or caller.expires_s is not None or caller.may_shrink:
            priority = max(0, request.priority) if caller.tenant else request.priority
            request = replace(
                request,
                tenant=caller.tenant,
                priority=priority,
                deadline_s=self._left_s(),
                may_shrink=caller.may_shrink,
            )
        prepared = await self._generator.prepare(request)
        self._check_time()
        return prepared

    def generate(self, prepared: Prepared) -> AsyncGenerator[Delta, None]:
        """See ``TextGenerator``."""
        if self._caller.expires_s is not None:
            prepared = replace(prepared, request=replace(prepared.request, deadline_s=self._left_s()))
        return self._generator.generate(prepared)

    def _check_time(self) -> None:
        if self._left_s() == 0:
            raise DeadlineExceeded("the request's deadline passed while it was being read")

    def _left_s(self) -> float | None:
        expires_s = self._caller.expires_s
        return None if expires_s is None else max(0.0, expires_s - self._clock())
