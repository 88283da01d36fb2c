"""Compressed header fields against the package hpack's own decoder and encoder."""

import random
from collections.abc import Sequence

import hpack
import pytest

from tribar.modelserver.grpc.http2.field_block import MAX_LIST_BYTES, Field, FieldBlocks, literal
from tribar.modelserver.grpc.http2.frames import Code, ConnectionFault


def blocks() -> FieldBlocks[tuple[Field, ...]]:
    return FieldBlocks(tuple)


NAMES = (b":method", b":path", b":authority", b"te", b"content-type", b"user-agent", b"x-a", b"x-" + b"b" * 200)
VALUES = (b"POST", b"/a/b", b"", b"trailers", b"v" * 130, bytes(range(33, 127)))


def some_fields(rng: random.Random) -> list[hpack.HeaderTuple]:
    make = (hpack.HeaderTuple, hpack.HeaderTuple, hpack.HeaderTuple, hpack.NeverIndexedHeaderTuple)
    return [rng.choice(make)(rng.choice(NAMES), rng.choice(VALUES)) for _ in range(rng.randrange(1, 10))]


@pytest.mark.parametrize("seed", range(60))
def test_a_connection_of_blocks_is_read_as_hpack_reads_it(seed: int) -> None:
    """Also blocks that come again, before and after the tables have changed, and sizes of the table that change."""
    rng = random.Random(seed)
    encoder, decoder, ours = hpack.Encoder(), hpack.Decoder(), blocks()
    earlier: list[list[hpack.HeaderTuple]] = [some_fields(rng)]
    for _ in range(100):
        if rng.random() < 0.05:
            encoder.header_table_size = rng.choice((0, 100, 500, 4096))
        fields = rng.choice(earlier) if rng.random() < 0.7 else some_fields(rng)
        earlier.append(fields)
        block = encoder.encode(fields, huffman=rng.random() < 0.5)
        assert list(ours.decode(block)) == [tuple(field) for field in decoder.decode(block, raw=True)]


def test_what_is_kept_is_as_old_as_the_tables() -> None:
    """The same bytes name other fields once another field is in the table."""
    ours = blocks()
    ours.decode(b"\x40\x01a\x011")
    assert ours.decode(b"\xbe") == ((b"a", b"1"),)
    assert ours.decode(b"\xbe") == ((b"a", b"1"),)
    ours.decode(b"\x40\x01b\x012")
    assert ours.decode(b"\xbe") == ((b"b", b"2"),)
    assert ours.decode(b"\xbf") == ((b"a", b"1"),)
    ours.decode(b"\x20\x82")
    with pytest.raises(ConnectionFault):
        ours.decode(b"\xbe")


def test_blocks_that_only_name_entries_are_read_once() -> None:
    read: list[Sequence[Field]] = []

    def remember(fields: Sequence[Field]) -> int:
        read.append(fields)
        return len(read)

    ours = FieldBlocks(remember)
    assert [ours.decode(block) for block in (b"\x82\x86", b"\x82\x86", b"\x82\x86")] == [1, 1, 1]
    assert [ours.decode(b"\x00\x01a\x011"), ours.decode(b"\x00\x01a\x011")] == [2, 3]


@pytest.mark.parametrize("seed", range(300))
def test_any_bytes_are_fields_or_a_fault(seed: int) -> None:
    """As hpack sees it, too, where it is a matter of the block and not of a limit."""
    rng = random.Random(seed)
    encoder = hpack.Encoder()
    block = bytearray(encoder.encode(some_fields(rng)))
    for _ in range(rng.randrange(4)):
        block[rng.randrange(len(block))] = rng.randrange(256)
    if rng.random() < 0.3:
        block = bytearray(rng.randbytes(rng.randrange(1, 60)))
    data = bytes(block[: rng.randrange(1, len(block) + 1)])
    try:
        expected = [tuple(field) for field in hpack.Decoder().decode(data, raw=True)]
    except (hpack.HPACKError, IndexError):
        expected = None
    try:
        found = list(blocks().decode(data))
    except ConnectionFault:
        found = None
    assert found == expected


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xff\x80\x80\x80\x80\x80\x80\x80\x01",  # a number of many bytes
        b"\xff\xff\xff\xff\xff\x0f",  # an entry that is not there
        b"\x3f\xe2\x1f",  # a table of 4097 bytes
        b"\x82\x20",  # a size of the table after a field
        b"\x00\x7f\xff\xff\xff\x07a",  # a name longer than its block
        b"\x00\x01a\x81\x00",  # padding of a Huffman code that is not all ones
        b"\x40",
        b"\x00\x01a",
    ],
)
def test_faulty_blocks(block: bytes) -> None:
    with pytest.raises(ConnectionFault) as caught:
        blocks().decode(block)
    assert caught.value.code is Code.COMPRESSION_ERROR


def test_a_small_block_does_not_become_a_large_list() -> None:
    """CVE-2016-6581: one entry of the table, named again and again."""
    ours = blocks()
    ours.decode(b"\x40\x01a" + literal(b"", b"x" * 3900)[2:])
    with pytest.raises(ConnectionFault) as caught:
        ours.decode(b"\xbe" * 1000)
    assert caught.value.code is Code.ENHANCE_YOUR_CALM
    with pytest.raises(ConnectionFault):
        blocks().decode(b"\x82" * (2 * MAX_LIST_BYTES // 32))


@pytest.mark.parametrize("n_bytes", [0, 1, 126, 127, 128, 255, 256, 5000])
def test_literals_are_read_back(n_bytes: int) -> None:
    field = (b"name", b"v" * n_bytes)
    assert [tuple(found) for found in hpack.Decoder().decode(literal(*field), raw=True)] == [field]
    assert blocks().decode(literal(*field)) == (field,)


def test_large_fields_are_not_kept() -> None:
    """A block of some bytes may name entries of thousands, and there are many such blocks and connections."""
    n_read = 0

    def count(_: Sequence[Field]) -> int:
        nonlocal n_read
        n_read += 1
        return n_read

    ours = FieldBlocks(count)
    ours.decode(b"\x40\x01a\x7f\x81\x17" + b"v" * 3072)
    assert [ours.decode(b"\xbe") for _ in range(2)] == [2, 3]


def test_sizes_of_the_table_that_change_again_and_again() -> None:
    """RFC 7541, section 4.2: the smallest and the last are all that is to be said."""
    assert blocks().decode(b"\x20\x3f\xe1\x1f\x82") == ((b":method", b"GET"),)
    with pytest.raises(ConnectionFault) as caught:
        blocks().decode(b"\x20" * 3 + b"\x82")
    assert caught.value.code is Code.COMPRESSION_ERROR
