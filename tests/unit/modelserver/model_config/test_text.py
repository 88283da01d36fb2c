"""BUG-059: the text format's corners, against ``google.protobuf.text_format`` as the oracle."""

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import BadModelFile
from tribar.modelserver.model_config import parse_config
from tribar.modelserver.model_config.positions import field_positions
from tribar.modelserver.model_config.text import MAX_CONFIG_BYTES

ACCEPTED = [
    "",
    "# only a comment",
    'name: "a" # a comment\n# another\nmax_batch_size: 8 # the last',
    'input { name: "a" } input { name: "b" }',
    'input [ { name: "a" }, { name: "b" } ]',
    'input: { name: "a" } input < name: "b" >',
    'input [ { name: "a" } ] input { name: "b" } input []',
    "input { dims: [ -1, 4 ] }",
    "input { dims: -1 dims: 4 }",
    "input { dims: [] }",
    "input { data_type: TYPE_FP32 } input { data_type: 11 } input { data_type: 99 }",
    'name: "a"; max_batch_size: 8, backend: "python"',
    'name: "a" \'b\'\n"c"',
    r'name: "\x61\142\n\"\'\\\u00e9"',
    'name: "a"\r\nmax_batch_size: 8\r\n',
    'name: "${NAME}" backend: "$${x}"',
    'name: "日本語"',
    "max_batch_size: 0x10",
    "model_transaction_policy { decoupled: True } response_cache { enable: 1 }",
    'parameters { key: "a" value { string_value: "b" } } parameters { key: "a" value: { string_value: "c" } }',
    'parameters: [ { key: "k" value: { string_value: "v" } } ]',
    "sequence_batching { direct { minimum_slot_utilization: 0.5 } }",
    "instance_group [ { kind: KIND_CPU count: 2 }, { kind: KIND_GPU gpus: [ 0, 1 ] } ]",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_bug_059_the_same_as_protobuf(text: str) -> None:
    assert parse_config(text.encode(), file="f") == text_format.Parse(text, ModelConfig())


REFUSED = [
    ("max_batchsize: 3", "1:1", "unknown field 'max_batchsize' in ModelConfig; did you mean 'max_batch_size'?"),
    ('name: "a"\n  max_batch_size: foo', "2:19", "expected an integer but found 'foo'"),
    (
        'input [\n  { name: "x"\n    data_type: FP32 }\n]',
        "3:16",
        "'FP32' is no value of DataType; did you mean 'TYPE_FP32'",
    ),
    ("input { data_type: TYPE_BYTES }", "1:20", "did you mean 'TYPE_STRING'?"),
    ("input { data_type: TYPE_FLOAT32 }", "1:20", "did you mean 'TYPE_FP32'?"),
    ("input { data_type: TYPE_FOO }", "1:20", "'TYPE_FOO' is no value of DataType"),
    ("instance_group { kind: CPU }", "1:24", "did you mean 'KIND_CPU'?"),
    ('input { nme: "x" }', "1:9", "unknown field 'nme' in ModelInput; did you mean 'name'?"),
    ("dims: 3", "1:1", "unknown field 'dims' in ModelConfig; it belongs into input or output"),
    ("preferred_batch_size: 3", "1:1", "it belongs into dynamic_batching"),
    ("colour: 3", "1:1", "unknown field 'colour' in ModelConfig; known here: name, platform"),
    ('name: "a', "1:7", "the string has no closing quote"),
    ("name: a", "1:7", "expected a string but found 'a'; put it in quotes"),
    ('name "a"', "1:6", "expected ':'"),
    ("input: 3", "1:8", "expected '{'"),
    ("input { dims: [ 1 2 ] }", "1:19", "separated by commas"),
    ("input { dims: [ 1, 2, ] }", "1:23", "expected an integer but found ']'"),
    ("input { dims: 1.5 }", "1:15", "expected an integer but found '1.5'"),
    ('input [ { name: "x" },\n', "2:1", "expected '{'"),
    ('input { name: "x"\n', "1:15", "expected '}'; an opening brace above is not closed"),
    ("max_batch_size: 99999999999", "1:17", "99999999999 does not fit"),
    ("max_batch_size: 1\nmax_batch_size: 2", "2:17", "'max_batch_size' is set twice"),
    ("dynamic_batching {}\nsequence_batching {}", "2:1", "'sequence_batching' excludes 'dynamic_batching'"),
    ("${x}", "1:1", "expected the name of a field but found '$'"),
    ("/* C */", "1:1", "comments start with #"),
    ('backend: "a";;', "1:14", "found ';'"),
    ('name: "a" }', "1:11", "found '}'"),
    ('name: "\\377"', "1:13", "no UTF-8"),
    ("input { optional: maybe }", "1:19", "expected true or false"),
    ('\ufeffname: "a"', "1:1", "byte order mark"),
]


@pytest.mark.parametrize(("text", "place", "reason"), REFUSED)
def test_bug_059_errors_tell_place_reason_and_a_way_out(text: str, place: str, reason: str) -> None:
    with pytest.raises(text_format.ParseError):
        text_format.Parse(text, ModelConfig())
    with pytest.raises(BadModelFile) as refused:
        parse_config(text.encode(), file="models/m/config.pbtxt")
    assert refused.value.message.startswith(f"models/m/config.pbtxt:{place}: ")
    assert reason in refused.value.message


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(BadModelFile, match=r"^f:2:8: byte 0xff is no UTF-8"):
        parse_config(b'name: "a"\nback: "\xff', file="f")


def test_a_huge_file_is_refused_at_once() -> None:
    with pytest.raises(BadModelFile, match="too many"):
        parse_config(b"#" * (MAX_CONFIG_BYTES + 1), file="f")


TOKENS = [
    "input",
    "name",
    "dims",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ":",
    ",",
    ";",
    '"a"',
    "'b'",
    "-1",
    "3",
    "TYPE_FP32",
    "#",
    "\n",
]
TOKENS += [
    "data_type",
    "parameters",
    "key",
    "value",
    "string_value",
    "max_batch_size",
    "-",
    "\\",
    '"\\ud800"',
    "1e9",
    "9" * 30,
]


@settings(deadline=None)
@given(st.one_of(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join), st.text(max_size=40)))
def test_any_text_is_parsed_as_protobuf_does_or_refused(text: str) -> None:
    try:
        expected = text_format.Parse(text, ModelConfig())
    except Exception:  # protobuf raises other things than its own error, too
        with pytest.raises(BadModelFile, match=r"^f:\d+:\d+: "):
            parse_config(text, file="f")
    else:
        assert parse_config(text, file="f") == expected
        field_positions(text)
