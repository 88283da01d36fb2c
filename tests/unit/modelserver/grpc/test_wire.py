"""Protobuf's wire format, against protobuf itself."""

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc.service_pb2 import InferParameter, ModelInferRequest

from tribar.core.errors import InvalidRequest, TooLarge
from tribar.modelserver.grpc.wire import MAX_MESSAGE_BYTES, joined, length_delimited, split_field, varint

RAW = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER


@given(st.integers(0, 2**63 - 1))
def test_varint_is_protobufs(value: int) -> None:
    message = InferParameter(int64_param=value).SerializeToString()
    assert message == b"\x10" + varint(value)


@given(st.lists(st.binary(max_size=300), max_size=4), st.text(max_size=200), st.booleans())
def test_a_split_message_is_the_message_without_the_field(contents: list[bytes], text: str, is_first: bool) -> None:
    message = ModelInferRequest(model_name=text, id=text, raw_input_contents=[] if is_first else contents)
    message.parameters["p"].double_param = 1.5
    serialised = message.SerializeToString()
    if is_first:
        serialised = b"".join([part for content in contents for part in length_delimited(RAW, content)]) + serialised
    rest, found = split_field(serialised, RAW)
    assert [bytes(content) for content in found] == contents
    del message.raw_input_contents[:]
    assert ModelInferRequest.FromString(rest) == message


@given(st.binary(max_size=40))
def test_bytes_that_are_no_message_are_refused_or_split(content: bytes) -> None:
    try:
        rest, found = split_field(content, RAW)
    except InvalidRequest:
        return
    assert len(rest) + sum(map(len, found)) <= len(content)


@pytest.mark.parametrize("content", [b"\x3a\x05ab", b"\x3a" + b"\xff" * 11, b"\x09\x01", b"\x0b", b"\x80"])
def test_lengths_beyond_the_end_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Unable to parse request"):
        split_field(content, RAW)


async def test_a_response_that_no_client_could_read_is_refused() -> None:
    """Its length has no place in the frame of gRPC from 4 GiB on, and none in Protocol Buffers from 2 GiB on."""
    text = "the response has 2147483648 bytes, and a gRPC message at most 2147483647"
    with (
        mmap.mmap(-1, MAX_MESSAGE_BYTES) as untouched,
        memoryview(untouched) as output,
        pytest.raises(TooLarge, match=text),
    ):
        await joined([b"1", output])
