"""The registry of shared-memory regions, on files of a directory of its own instead of /dev/shm."""

import gc
import os
from pathlib import Path

import pytest

from tribar.core.errors import Conflict, Internal, InvalidRequest, NotFound, TooLarge, Unavailable, Unsupported
from tribar.modelserver.shared_memory import RegionStatus, SharedMemory

SIZE = 64


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "segment").write_bytes(bytes(range(SIZE)))
    return tmp_path


@pytest.fixture
def memory(directory: Path) -> SharedMemory:
    return SharedMemory(is_enabled=True, directory=directory)


async def test_a_registered_range_is_read_and_written(memory: SharedMemory, directory: Path) -> None:
    memory.register("r", "/segment", byte_size=32, offset=16)
    span = memory.span("r", byte_size=4, offset=8)
    assert bytes(await span.read()) == bytes(range(24, 28))
    await span.write("OUTPUT0", b"abc")
    assert (directory / "segment").read_bytes()[22:30] == b"\x16\x17abc\x1b\x1c\x1d"
    assert memory.status() == memory.status("r") == [RegionStatus("r", "/segment", 16, 32)]


async def test_large_spans_are_copied_whole(memory: SharedMemory, directory: Path) -> None:
    content = os.urandom((3 << 20) + 1)
    (directory / "large").write_bytes(content)
    memory.register("r", "large", byte_size=len(content))
    span = memory.span("r", byte_size=len(content))
    assert bytes(await span.read()) == content
    await span.write("OUTPUT0", content[::-1])
    assert (directory / "large").read_bytes() == content[::-1]


@pytest.mark.parametrize(
    ("byte_size", "offset"), [(0, 0), (-1, 0), (65, 0), (1, 64), (33, 32), (2**64 - 1, 2), (2, 2**64 - 1), (8, -8)]
)
def test_a_range_outside_of_the_segment_is_refused(memory: SharedMemory, byte_size: int, offset: int) -> None:
    """BUG-073: offset and size beyond the segment, or beyond 64 bits."""
    with pytest.raises(InvalidRequest, match="failed to register shared memory region 'r': invalid args"):
        memory.register("r", "/segment", byte_size=byte_size, offset=offset)
    assert memory.status() == []


@pytest.mark.parametrize(
    ("byte_size", "offset"), [(0, 0), (-8, 0), (33, 0), (1, 32), (8, -1), (25, 8), (2**63, 0), (1, 2**63)]
)
def test_a_span_outside_of_the_region_is_refused(memory: SharedMemory, byte_size: int, offset: int) -> None:
    """BUG-073: a request may not reach what is beside its region."""
    memory.register("r", "/segment", byte_size=32, offset=16)
    with pytest.raises(InvalidRequest, match="shared memory region: 'r'"):
        memory.span("r", byte_size=byte_size, offset=offset)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a\nb", "n" * 256])
def test_names_that_are_paths_or_endless_are_refused(memory: SharedMemory, name: str) -> None:
    """BUG-073: a region's name."""
    with pytest.raises(InvalidRequest, match="name"):
        memory.register(name, "/segment", byte_size=SIZE)


@pytest.mark.parametrize("key", ["/../x", "../segment", "/a/b", "//segment", "/..", "/.", "/a\0b", "/seg\nment"])
def test_keys_that_lead_elsewhere_are_refused(memory: SharedMemory, key: str) -> None:
    """BUG-073: a key is a segment's name, never a path."""
    with pytest.raises(InvalidRequest, match="no segment's"):
        memory.register("r", key, byte_size=SIZE)


@pytest.mark.parametrize("key", ["/triton_python_backend_shm_region_1", "tribar-1", "/sem.lock"])
def test_keys_of_servers_are_refused(memory: SharedMemory, directory: Path, key: str) -> None:
    """BUG-073: a caller cannot read or write the memory in which a server's parts talk to each other."""
    (directory / key.removeprefix("/")).write_bytes(bytes(SIZE))
    with pytest.raises(InvalidRequest, match="reserved"):
        memory.register("r", key, byte_size=SIZE)


def test_a_segment_that_is_not_there_cannot_be_opened(memory: SharedMemory) -> None:
    for key in ("/nonesuch", "", "/", "k" * 300):
        with pytest.raises(Internal, match="Unable to open shared memory region"):
            memory.register("r", key, byte_size=SIZE)


def test_links_pipes_and_folders_are_no_segments(memory: SharedMemory, directory: Path) -> None:
    secret = directory / "secret"
    secret.write_bytes(bytes(SIZE))
    (directory / "link").symlink_to(secret)
    (directory / "folder").mkdir()
    os.mkfifo(directory / "pipe")
    for key in ("link", "folder"):
        with pytest.raises(Internal, match="Unable to open"):
            memory.register("r", key, byte_size=SIZE)
    with pytest.raises(InvalidRequest, match="Invalid shared memory region"):
        memory.register("r", "pipe", byte_size=SIZE)


def test_a_name_is_registered_once(memory: SharedMemory) -> None:
    """BUG-073: register twice."""
    memory.register("r", "/segment", byte_size=SIZE)
    with pytest.raises(Conflict, match="already in manager"):
        memory.register("r", "/segment", byte_size=8)
    memory.register("other", "/segment", byte_size=8)
    memory.unregister("r")
    memory.register("r", "/segment", byte_size=8)
    assert [region.name for region in memory.status()] == ["other", "r"]


async def test_a_span_outlives_its_region(memory: SharedMemory) -> None:
    """BUG-073: unregistering while a request uses the region, or while its segment is removed."""
    memory.register("r", "/segment", byte_size=SIZE)
    span = memory.span("r", byte_size=4)
    memory.unregister()
    with pytest.raises(NotFound, match="'r'"):
        memory.span("r", byte_size=4)
    await span.write("OUTPUT0", b"abcd")
    assert bytes(await span.read()) == b"abcd"


def n_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_unregistered_regions_close_their_files(memory: SharedMemory) -> None:
    before = n_open_files()
    for index in range(10):
        memory.register(f"r{index}", "/segment", byte_size=SIZE)
    with pytest.raises(InvalidRequest):
        memory.register("too-large", "/segment", byte_size=SIZE + 1)
    assert n_open_files() == before + 10
    memory.unregister("r0")
    memory.unregister("nonesuch")
    memory.unregister()
    gc.collect()
    assert n_open_files() == before


async def test_a_truncated_segment_is_an_error_not_a_crash(memory: SharedMemory, directory: Path) -> None:
    """A mapping of it would be the end of the process (SIGBUS)."""
    memory.register("r", "/segment", byte_size=SIZE)
    span = memory.span("r", byte_size=SIZE)
    os.truncate(directory / "segment", 10)
    with pytest.raises(InvalidRequest, match="shorter since it was registered"):
        await span.read()
    with pytest.raises(InvalidRequest, match="shorter since it was registered"):
        await span.write("OUTPUT0", bytes(SIZE))
    assert (directory / "segment").stat().st_size == 10


async def test_an_output_larger_than_its_span_is_refused(memory: SharedMemory, directory: Path) -> None:
    """BUG-073: the output region is too small."""
    memory.register("r", "/segment", byte_size=SIZE)
    with pytest.raises(InvalidRequest, match=r"'OUT' \(4 bytes\) should be at least 5 bytes"):
        await memory.span("r", byte_size=4).write("OUT", b"abcde")
    assert (directory / "segment").read_bytes() == bytes(range(SIZE))


def test_regions_and_spans_are_bounded(directory: Path) -> None:
    memory = SharedMemory(is_enabled=True, directory=directory, max_regions=2, max_span_bytes=32)
    for name in ("a", "b"):
        memory.register(name, "/segment", byte_size=SIZE)
    with pytest.raises(Unavailable, match="unregister some"):
        memory.register("c", "/segment", byte_size=SIZE)
    with pytest.raises(TooLarge, match="32 bytes"):
        memory.span("a", byte_size=33)


def test_it_is_off_unless_enabled(directory: Path) -> None:
    """BUG-073: off by default, and the refusal names the flag."""
    memory = SharedMemory(directory=directory)
    with pytest.raises(Unsupported, match="--allow-shared-memory"):
        memory.register("r", "/segment", byte_size=SIZE)
    with pytest.raises(Unsupported, match="--allow-shared-memory"):
        memory.span("r", byte_size=8)
    memory.unregister("r")
    assert memory.status() == []
