"""API keys: who may use the server, and as which tenant. What is kept of a key is its digest.

The file is TOML, written by ``tribar keys new``::

    [[keys]]
    tenant = "alice"
    hash = "sha256:..."

An entry may limit what its key may use: ``requests_per_minute = 60`` and the others of ``app/allowances.py``.
"""

import hashlib
import logging
import re
import secrets
import threading
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from tribar.app.allowances import LIMITS, read_allowance
from tribar.app.files import read_toml
from tribar.core.errors import InvalidRequest
from tribar.gateway.key_id import KEY_ID_DIGITS
from tribar.gateway.limits.rules import Allowance

KEY_VARIABLES = ("TRIBAR_API_KEY", "TRIBAR_API_KEYS")
"""Environment variables that hold keys themselves: one, or several with commas or spaces between them. Each may follow
the name of its tenant and a colon."""

MIN_KEY_CHARS = 16

_TENANT = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")

_log = logging.getLogger(__name__)


def new_key() -> str:
    """A fresh key of 256 random bits."""
    return f"sk-tribar-{secrets.token_urlsafe(32)}"


def digest_of(key: bytes) -> bytes:
    """What is stored instead of ``key``: its SHA-256.

    Passwords need a slow, salted hash because they can be guessed. Nobody can search through 2^256 random keys, salted
    or not, so a fast hash loses nothing, and each request can afford it.
    """
    return hashlib.sha256(key).digest()


def entry_for(key: str, tenant: str | None) -> str:
    """The table for ``key`` in the file. Raises ``InvalidRequest`` for a name that no tenant can have."""
    digest = digest_of(key.encode())
    name = _default_tenant(digest) if tenant is None else _checked_tenant(tenant, "--tenant")
    return f'[[keys]]\ntenant = "{name}"\nhash = "sha256:{digest.hex()}"\n'


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A valid key: whose it is, and what it may use beside what its tenant may; None is no limit of its own."""

    tenant: str
    allowance: Allowance | None = None


class ApiKeys:
    """The valid keys: those of ``file``, which can be read again, and those of ``fixed`` (digest to tenant)."""

    def __init__(self, file: Path | None, fixed: Mapping[bytes, str] | None = None) -> None:
        """Raises ``InvalidRequest`` naming the file and the entry that is wrong."""
        self.file = file
        self._fixed = dict(fixed or {})
        self._reading = threading.Lock()
        self._valid = self._read()
        self._allowances = _allowances(self._valid)

    def tenant_of(self, key: bytes) -> str | None:
        """The tenant of ``key``; None for one that is not valid.

        Keys are not compared, their digests are looked up. All that timing could tell is how a stored digest begins,
        and from there no way leads to its key, nor to another one with such a digest.
        """
        entry = self._valid.get(digest_of(key))
        return None if entry is None else entry.tenant

    def allowance_of(self, key_id: str) -> Allowance | None:
        """What the key with that id may use. Two keys whose hashes begin alike would share it: one chance in 2^64."""
        return self._allowances.get(key_id)

    def reload(self) -> None:
        """Read the file again, in any thread. One that cannot be used changes nothing and is logged in one line.

        An empty one can be used: it takes every key back, and whoever meant that must not be disappointed.
        """
        with self._reading:
            try:
                self._valid = self._read()
                self._allowances = _allowances(self._valid)
            except InvalidRequest as error:
                _log.error("the API keys stay as they were: %s", error.message)
                return
            n_keys = len(self._valid)
        if n_keys:
            _log.info("%d API keys are valid now", n_keys)
        else:
            _log.warning("no API key is valid now: %s has none, so every request is refused", self.file)

    def _read(self) -> dict[bytes, KeyEntry]:
        fixed = [(digest, KeyEntry(tenant)) for digest, tenant in self._fixed.items()]
        entries = [] if self.file is None else _entries(self.file)
        return _distinct([*fixed, *entries], str(self.file))


def keys_from(file: str | None, environ: MutableMapping[str, str]) -> ApiKeys | None:
    """The keys that the settings and the environment name; None where they name none, so that everybody may come in.

    Keys are taken out of ``environ``: child processes have no use for them. Raises ``InvalidRequest``, which never
    quotes a key; an empty variable is refused, since a server that is open by a mistake looks like any other.
    """
    given = {name: environ.pop(name) for name in KEY_VARIABLES if name in environ}
    pairs = [pair for name, text in given.items() for pair in _pairs(name, text)]
    if file is None and not given:
        return None
    fixed = _distinct([(digest, KeyEntry(tenant)) for digest, tenant in pairs], " and ".join(given))
    return ApiKeys(None if file is None else Path(file), {digest: entry.tenant for digest, entry in fixed.items()})


def _pairs(variable: str, text: str) -> Iterable[tuple[bytes, str]]:
    words = re.split(r"[,\s]+", text.strip(", \t\r\n"))
    if words == [""]:
        raise InvalidRequest(f"{variable} is empty: unset it, or put an API key into it", param=variable)
    for number, word in enumerate(words, 1):
        tenant, colon, key = word.rpartition(":")
        where = f"{variable}: key {number}"
        if not (key.isascii() and key.isprintable()):
            raise InvalidRequest(f"{where} has characters that are not printable ASCII", param=variable)
        if len(key) < MIN_KEY_CHARS:
            hint = "make one with: tribar keys new"
            raise InvalidRequest(f"{where} is shorter than {MIN_KEY_CHARS} characters\n{hint}", param=variable)
        digest = digest_of(key.encode())
        yield digest, _checked_tenant(tenant, where) if colon else _default_tenant(digest)


def _entries(path: Path) -> Iterable[tuple[bytes, KeyEntry]]:
    document = read_toml(path, "api_keys_file")
    tables = document.pop("keys", [])
    if document or not isinstance(tables, list):
        raise InvalidRequest(f"{path}: expected nothing but [[keys]] tables", param="api_keys_file")
    for number, table in enumerate(tables, 1):
        where = f"{path}: entry {number}"
        if not isinstance(table, dict) or not set(table) <= {"tenant", "hash", *LIMITS}:
            raise InvalidRequest(f"{where} may have tenant and hash only, and limits", param="api_keys_file")
        hashed = _HASH.fullmatch(str(table.get("hash")))
        if hashed is None:
            raise InvalidRequest(f"{where}: hash must be sha256: and 64 hexadecimal digits", param="api_keys_file")
        digest = bytes.fromhex(hashed[1])
        tenant = _checked_tenant(table["tenant"], where) if "tenant" in table else _default_tenant(digest)
        yield digest, KeyEntry(tenant, read_allowance(table, where, "api_keys_file"))


def _distinct(pairs: Iterable[tuple[bytes, KeyEntry]], where: str) -> dict[bytes, KeyEntry]:
    entries: dict[bytes, KeyEntry] = {}
    for digest, entry in pairs:
        if digest in entries:
            message = f"{where}: the same key twice, for {entries[digest].tenant} and {entry.tenant}"
            raise InvalidRequest(message, param="api_keys_file")
        entries[digest] = entry
    return entries


def _allowances(entries: Mapping[bytes, KeyEntry]) -> dict[str, Allowance]:
    return {
        digest.hex()[:KEY_ID_DIGITS]: entry.allowance
        for digest, entry in entries.items()
        if entry.allowance is not None
    }


def _default_tenant(digest: bytes) -> str:
    """A key without a tenant is one by itself."""
    return f"key-{digest.hex()[:8]}"


def _checked_tenant(name: object, where: str) -> str:
    if not isinstance(name, str) or not _TENANT.fullmatch(name):
        raise InvalidRequest(f"{where}: a tenant is 1 to 64 of the characters A-Z a-z 0-9 . _ @ -", param="tenant")
    return name
