import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import deserialize_bytes_tensor as clients_deserialize
from tritonclient.utils import serialize_byte_tensor as clients_serialize

from tribar.core.tensors import DataType
from tribar.modelserver.backends.python.worker.api.byte_tensors import deserialize_bytes_tensor, serialize_byte_tensor
from tribar.modelserver.backends.python.worker.api.datatypes import (
    CODES,
    datatype_of,
    numpy_to_triton_type,
    triton_string_to_numpy,
    triton_to_numpy_type,
)


def test_the_numbers_are_tritons() -> None:
    named = {("TYPE_STRING" if name is DataType.BYTES else f"TYPE_{name}"): code for name, code in CODES.items()}
    assert named == {name: code for name, code in model_config_pb2.DataType.items() if code != 0}


@pytest.mark.parametrize("datatype", [datatype for datatype in DataType if datatype is not DataType.BF16])
def test_numpys_types_and_back(datatype: DataType) -> None:
    name = "TYPE_STRING" if datatype is DataType.BYTES else f"TYPE_{datatype}"
    numpy_type = triton_string_to_numpy(name)
    assert np.dtype(numpy_type) == datatype.dtype
    assert numpy_to_triton_type(numpy_type) == CODES[datatype]
    assert np.dtype(triton_to_numpy_type(CODES[datatype])) == datatype.dtype
    assert datatype_of(np.dtype(numpy_type)) is datatype


def test_what_triton_lacks() -> None:
    for name in (">f4", "c8", "U3", "M8[s]", "g"):
        assert datatype_of(np.dtype(name)) is None
    assert datatype_of(np.dtype(np.longlong)) is DataType.INT64
    assert datatype_of(np.dtype("S7")) is DataType.BYTES
    assert numpy_to_triton_type(np.bytes_) == 13
    assert numpy_to_triton_type(np.complex64) is None
    with pytest.raises(KeyError):
        triton_string_to_numpy("TYPE_BF16")


@pytest.mark.parametrize(
    "array",
    [np.array([[b"a\x00", b""], ["\u00e9", 7]], object), np.array([b"ab", b"c"]), np.array([b"\xff" * 300], object)],
)
def test_byte_tensors_as_the_client_library_has_them(
    array: "np.ndarray[tuple[int, ...], np.dtype[np.object_]]",
) -> None:
    ours = serialize_byte_tensor(array)
    assert ours == clients_serialize(array).item()
    assert isinstance(ours, bytes)
    assert deserialize_bytes_tensor(ours).tolist() == clients_deserialize(ours).tolist()


def test_odd_byte_tensors() -> None:
    assert serialize_byte_tensor(np.zeros(0, object)) == ()
    assert serialize_byte_tensor(np.zeros(2)) is None
    with pytest.raises(ValueError, match="element 1 is cut short"):
        deserialize_bytes_tensor(b"\x01\x00\x00\x00a\x05\x00\x00\x00b")
