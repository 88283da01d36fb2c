"""Header fields from their compressed form, and into an uncompressed one. Source: RFC 7541 (HPACK).

The tables and the Huffman code are the package hpack's. Its decoder is not used: it copies what is left of a block for
each field, and reads numbers of any length.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from tribar.modelserver.grpc.http2.frames import Code, ConnectionFault

H = TypeVar("H")
Field = tuple[bytes, bytes]

MAX_BLOCK_BYTES: Final = 32768
"""Of one block with its CONTINUATION frames."""
MAX_LIST_BYTES: Final = 16384
"""Of the fields with 32 bytes more for each (RFC 9113, section 6.5.2): what peers are told."""
_MAX_LIST_BYTES_READ: Final = 2 * MAX_LIST_BYTES
"""From there on reading stops, and with it the connection, because the table is out of step then."""
_FIELD_OVERHEAD_BYTES: Final = 32
_TABLE_BYTES: Final = 4096
_MAX_NUMBER_BYTES: Final = 5
_MAX_RESIZINGS: Final = 2
"""At the beginning of a block: more say nothing (RFC 7541, section 4.2)."""
_N_KEPT: Final = 16
_MAX_BYTES_KEPT: Final = 2048
"""Of the fields of each: what names entries is a byte, and what is made of it may be thousands."""

_INDEXED, _INDEXING, _RESIZING = 0x80, 0x40, 0x20
_ONE_BYTE_INDICES: Final = bytes(range(_INDEXED, 0xFF))


def literal(name: bytes, value: bytes) -> bytes:
    """A field that changes no table: neither indexed nor Huffman coded."""
    return b"\x00" + _string(name) + _string(value)


class FieldBlocks(Generic[H]):
    """The blocks of one connection, each as ``read`` makes it of its fields.

    What was made of blocks that only name entries of the tables is kept for as long as the table is: a client's calls
    mostly differ in nothing else.
    """

    def __init__(self, read: Callable[[Sequence[Field]], H]) -> None:
        self._read = read
        self._table = HeaderTable()
        self._kept: dict[bytes, H] = {}

    def decode(self, block: bytes) -> H:
        """Raises ``ConnectionFault`` for what is no block, or one of too many fields."""
        kept = self._kept.get(block)
        if kept is not None:
            return kept
        try:
            fields = self._fields(block)
        except (HPACKError, IndexError) as error:
            raise ConnectionFault(Code.COMPRESSION_ERROR, f"the header fields cannot be read: {error}") from None
        made = self._read(fields)
        if not block.translate(None, _ONE_BYTE_INDICES) and list_size(fields) <= _MAX_BYTES_KEPT:
            if len(self._kept) == _N_KEPT:
                self._kept.clear()
            self._kept[block] = made
        return made

    def _fields(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at = n_bytes = n_resizings = 0
        while at < len(block):
            first = block[at]
            if first & _INDEXED:
                index, at = _number(block, at, 0x7F)
                name, value = self._table.get_by_index(index)
            elif first & (_INDEXING | _RESIZING) == _RESIZING:
                size, at = _number(block, at, 0x1F)
                n_resizings += 1
                if fields or n_resizings > _MAX_RESIZINGS or size > _TABLE_BYTES:
                    raise ConnectionFault(Code.COMPRESSION_ERROR, "a size of the table that is not allowed")
                self._kept.clear()
                self._table.maxsize = size
                continue
            else:
                is_indexed = first & _INDEXING
                index, at = _number(block, at, 0x3F if is_indexed else 0x0F)
                if index:
                    name = self._table.get_by_index(index)[0]
                else:
                    name, at = _read_string(block, at)
                value, at = _read_string(block, at)
                if is_indexed:
                    self._kept.clear()
                    self._table.add(name, value)
            n_bytes += len(name) + len(value) + _FIELD_OVERHEAD_BYTES
            if n_bytes > _MAX_LIST_BYTES_READ:
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many header fields, or too large ones")
            fields.append((name, value))
        return fields


def list_size(fields: Sequence[Field]) -> int:
    """As ``MAX_LIST_BYTES`` counts it."""
    return sum(len(name) + len(value) + _FIELD_OVERHEAD_BYTES for name, value in fields)


def _string(text: bytes) -> bytes:
    n_bytes = len(text)
    if n_bytes < 0x7F:
        return bytes((n_bytes,)) + text
    length = bytearray(b"\x7f")
    n_bytes -= 0x7F
    while n_bytes >= 0x80:
        length.append(n_bytes & 0x7F | 0x80)
        n_bytes >>= 7
    length.append(n_bytes)
    return bytes(length) + text


def _number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """The number whose first bits ``mask`` keeps, and where it ends. Raises ``IndexError`` where it does not."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in range(0, 7 * _MAX_NUMBER_BYTES, 7):
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ConnectionFault(Code.COMPRESSION_ERROR, "a number of too many bytes")


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    is_huffman = block[at] & 0x80
    n_bytes, at = _number(block, at, 0x7F)
    end = at + n_bytes
    if end > len(block):
        raise ConnectionFault(Code.COMPRESSION_ERROR, "a string that ends after its block")
    text = block[at:end]
    return (bytes(decode_huffman(text)) if is_huffman else text), end
