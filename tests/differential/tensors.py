"""The raw form of tensors in the binary extension, and back."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

DTYPES: dict[str, str] = {
    "BOOL": "?",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}


def pack(datatype: str, values: Sequence[Any]) -> bytes:
    """Flat values as bytes: BYTES elements with their length before them, BF16 as the upper half of FP32."""
    if datatype == "BYTES":
        elements = [value if isinstance(value, bytes) else str(value).encode() for value in values]
        return b"".join(struct.pack("<I", len(element)) + element for element in elements)
    if datatype == "BF16":
        return (np.array(values, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return np.array(values, DTYPES[datatype]).tobytes()


def unpack(datatype: str, raw: bytes) -> list[Any]:
    """Bytes as flat values that JSON can hold: non-finite numbers as text, BYTES that are not UTF-8 in hexadecimal."""
    if datatype == "BYTES":
        return [readable(element) for element in split_elements(raw)]
    if datatype == "BF16":
        return numbers((np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4"))
    return numbers(np.frombuffer(raw, DTYPES[datatype]))


def split_elements(raw: bytes) -> list[bytes]:
    """The elements of a BYTES tensor."""
    elements, start = [], 0
    while start < len(raw):
        (length,) = struct.unpack_from("<I", raw, start)
        elements.append(raw[start + 4 : start + 4 + length])
        start += 4 + length
    return elements


def numbers(array: np.ndarray[Any, Any]) -> list[Any]:
    """Numbers, the non-finite ones as text."""
    return [value if not isinstance(value, float) or np.isfinite(value) else str(value) for value in array.tolist()]


def readable(element: bytes) -> str:
    """Text, or the bytes in hexadecimal."""
    try:
        return element.decode()
    except UnicodeDecodeError:
        return f"hex:{element.hex()}"
