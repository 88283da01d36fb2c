"""A bounds-checked reader of the primitive values of a GGUF header.

Types by number, from the specification (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): the table below
plus 8, a string (u64 length, UTF-8 bytes), and 9, an array (u32 item type, u64 count, items).
"""

import struct
from typing import Any

import numpy as np

from tribar.runtime.formats.mapped import MappedFile

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_NUMBERS: dict[int, np.dtype[Any]] = {
    number: np.dtype(code)
    for number, code in {
        0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
    }.items()
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9
_MAX_NAME_LENGTH = 1 << 16


class Cursor:
    """Reads forward; ``position`` never passes the end of the file."""

    def __init__(self, file: MappedFile, position: int) -> None:
        self.file = file
        self.position = position

    def advance(self, n_bytes: int, what: str) -> int:
        """Step over ``n_bytes``; returns where they start."""
        start = self.position
        if n_bytes > self.file.n_bytes - start:
            left = self.file.n_bytes - start
            raise self.file.bad(start, f"{what} needs {n_bytes} bytes and {left} are left: truncated or damaged")
        self.position = start + n_bytes
        return start

    def plausible(self, count: int, min_bytes: int, what: str) -> int:
        """``count``, if that many items of at least ``min_bytes`` fit into what is left."""
        if count * min_bytes > self.file.n_bytes - self.position:
            raise self.file.bad(self.position, f"{count} {what} cannot fit into the rest of the file")
        return count

    def u32(self, what: str) -> int:
        """The next number of 4 bytes."""
        value: int = _U32.unpack_from(self.file.map, self.advance(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """The next number of 8 bytes."""
        value: int = _U64.unpack_from(self.file.map, self.advance(8, what))[0]
        return value

    def string(self, what: str) -> str:
        """The next string."""
        n_bytes = self.u64(f"length of {what}")
        start = self.advance(n_bytes, what)
        try:
            return self.file.map[start : start + n_bytes].decode()
        except UnicodeDecodeError as error:
            raise self.file.bad(start + error.start, f"{what} is not UTF-8") from error

    def name(self, what: str) -> str:
        """The next string, neither empty nor absurdly long."""
        start = self.position
        name = self.string(what)
        if not 0 < len(name) <= _MAX_NAME_LENGTH:
            raise self.file.bad(start, f"a {what} of {len(name)} characters")
        return name

    def value(self, key: str) -> object:
        """The next typed value of the metadata."""
        start = self.position
        kind = self.u32(f"type of {key!r}")
        if kind == _STRING:
            return self.string(repr(key))
        if kind != _ARRAY:
            return self._numbers(kind, 1, key, start).item()
        item_kind = self.u32(f"item type of {key!r}")
        count = self.u64(f"length of {key!r}")
        if item_kind == _STRING:
            return self._strings(count, key)
        return self._numbers(item_kind, count, key, start)

    def _numbers(self, kind: int, count: int, key: str, offset: int) -> np.ndarray[Any, np.dtype[Any]]:
        dtype = _NUMBERS.get(kind)
        if dtype is None:
            nested = "nested arrays are" if kind == _ARRAY else f"value type {kind} is"
            raise self.file.bad(offset, f"{nested} not supported (key {key!r})")
        start = self.advance(count * dtype.itemsize, repr(key))
        stored = self.file.contents[start : self.position]
        if kind == _BOOL and stored.size and stored.max() > 1:
            raise self.file.bad(start, f"{key!r} holds a boolean other than 0 and 1")
        # A copy: metadata must outlive the mapping.
        numbers = stored.view(dtype).copy()
        numbers.flags.writeable = False
        return numbers

    def _strings(self, count: int, key: str) -> list[str]:
        """A vocabulary has a hundred thousand of these, so the loop is flat (see ``string`` for the plain form)."""
        self.plausible(count, 8, f"strings of {key!r}")
        data, end, length_at = self.file.map, self.file.n_bytes, _U64.unpack_from
        position = self.position
        strings: list[str] = []
        try:
            for _ in range(count):
                start = position + 8
                position = start + length_at(data, position)[0]
                if position > end:
                    raise self.file.bad(start, f"string {len(strings)} of {key!r} runs over the end of the file")
                strings.append(data[start:position].decode())
        except UnicodeDecodeError as error:
            raise self.file.bad(start, f"string {len(strings)} of {key!r} is not UTF-8") from error
        except struct.error as error:
            raise self.file.bad(position, f"{key!r} is truncated") from error
        self.position = position
        return strings
