"""GGUF models: one file, or the shards that ``llama-gguf-split`` makes of it.

A shard ``NAME-00002-of-00003.gguf`` carries ``split.no`` (counted from 0), ``split.count`` and ``split.tensors.count``
(https://github.com/ggml-org/llama.cpp/tree/master/tools/gguf-split); the first one carries the model's metadata.
"""

import re
from pathlib import Path

from tribar.core.errors import BadModelFile
from tribar.runtime.formats.gguf_header import GGUFHeader, read_header
from tribar.runtime.formats.gguf_quants import dequantise
from tribar.runtime.formats.mapped import MappedFile, MappedWeights, merge_shards

SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def open_gguf(path: Path) -> MappedWeights:
    """Map a GGUF file; any shard of a split model opens all of it. Raises ``BadModelFile`` before weights are read.

    ``metadata`` holds python values by key: arrays of numbers as read-only numpy arrays, of strings as lists.
    """
    header = read_header(MappedFile(path))
    count = _number(path, header, "split.count", 1)
    if count <= 1:
        return MappedWeights(path, header.metadata, header.tensors, dequantise)
    headers = {shard: header if shard == path else read_header(MappedFile(shard)) for shard in _shards(path, count)}
    for index, (shard, its_header) in enumerate(headers.items()):
        _check_shard(shard, index, count, its_header)
    tensors = merge_shards({shard: its_header.tensors for shard, its_header in headers.items()})
    first_path, first = next(iter(headers.items()))
    expected = _number(first_path, first, "split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise BadModelFile(
            f"{first_path}: key 'split.tensors.count' promises {expected} tensors, the shards hold {len(tensors)}"
        )
    return MappedWeights(path, first.metadata, tensors, dequantise)


def _number(path: Path, header: GGUFHeader, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if not isinstance(value, int):
        raise BadModelFile(f"{path}: key {key!r} is not a whole number")
    return value


def _shards(path: Path, count: int) -> list[Path]:
    """The paths of all shards, in order, all present."""
    match = SHARD_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count or not 1 <= int(match["number"]) <= count:
        raise BadModelFile(
            f"{path}: key 'split.count' is {count}, so the file should be called NAME-xxxxx-of-{count:05}.gguf; "
            "give the shards their original names"
        )
    shards: list[Path] = []
    for number in range(1, count + 1):
        shard = path.with_name(f"{match['stem']}-{number:05}-of-{match['count']}.gguf")
        if not shard.is_file():
            raise BadModelFile(
                f"{path}: its sibling {shard.name} is missing; put all {count} shards into one directory"
            )
        shards.append(shard)
    return shards


def _check_shard(path: Path, index: int, count: int, header: GGUFHeader) -> None:
    number, own_count = _number(path, header, "split.no", 0), _number(path, header, "split.count", 1)
    if (number, own_count) != (index, count):
        raise BadModelFile(
            f"{path}: keys 'split.no' and 'split.count' are {number} and {own_count}, expected {index} and {count}; "
            "the shards belong to different models"
        )
