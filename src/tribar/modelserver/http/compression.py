"""Compressed bodies: requests by Content-Encoding, answers by Accept-Encoding (gzip and deflate)."""

import zlib
from typing import Final

from tribar.core.errors import InvalidRequest, TooLarge, Unsupported

_AUTOMATIC: Final = 32 + zlib.MAX_WBITS
"""gzip or zlib, whichever the data begins as."""

_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_LEVEL: Final = 1
"""Answers are made for one reader: speed before size."""


def inflate(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """The body before compression.

    Raises ``Unsupported`` for an encoding that is not offered, ``InvalidRequest`` for data that is not compressed, cut
    off or longer than it says, ``TooLarge`` where it grows beyond ``max_bytes``.
    """
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return body
    if name not in _WINDOWS:
        raise Unsupported(f"Unsupported compression type: Content-Encoding {name[:100]!r}, not gzip or deflate")
    if not body:
        raise InvalidRequest("nothing to be decompressed: the body is empty")
    reader = zlib.decompressobj(_AUTOMATIC)
    try:
        inflated = reader.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise InvalidRequest(f"the request body is not {name}: {error}") from None
    if len(inflated) > max_bytes:
        raise TooLarge(f"the request body is larger than {max_bytes} bytes once it is decompressed")
    if not reader.eof:
        raise InvalidRequest(f"the request body ends in the middle of its {name} data")
    if reader.unused_data:
        raise InvalidRequest(f"the request body goes on after its {name} data")
    return inflated


def deflate(pieces: list[bytes | memoryview], encoding: str) -> bytes:
    """The pieces as one compressed body. ``encoding`` is one of ``choose_encoding``."""
    writer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOWS[encoding])
    return b"".join([*map(writer.compress, pieces), writer.flush()])


def choose_encoding(accepted: str) -> str:
    """ "gzip", "deflate" or "": the one with the highest weight in an Accept-Encoding header, the first of equals."""
    best, best_weight = "", 0.0
    for choice in accepted.lower().split(","):
        name, _, parameters = choice.partition(";")
        weight = _weight(parameters)
        if name.strip() in _WINDOWS and weight > best_weight:
            best, best_weight = name.strip(), weight
    return best


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
