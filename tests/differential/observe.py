"""Answers as plain data: decoded, and without what differs from run to run."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from tests.differential.case import Call, Grpc, Http, View
from tests.differential.tensors import unpack

Answer = dict[str, Any]
MAX_ELEMENTS = 100
HEADER_LENGTH = "inference-header-content-length"


def observe_http(call: Http, status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Status, media type, compression and content of an HTTP answer."""
    answer: Answer = {"status": status}
    if body and "content-type" in headers:
        answer["type"] = headers["content-type"].partition(";")[0].strip()
    if "content-encoding" in headers:
        answer["encoding"] = headers["content-encoding"]
        body = inflate(headers["content-encoding"], body)
    if HEADER_LENGTH in headers:
        answer["binary"] = True
        content: Any = with_binary_outputs(body, int(headers[HEADER_LENGTH]))
    else:
        content = parse(body, answer.get("type", ""))
    if isinstance(content, dict) and set(content) == {"error"}:
        return answer | content
    return answer | {"content": reduce(content, call)}


def observe_grpc(call: Grpc, code: str, details: str, messages: Sequence[Any]) -> Answer:
    """Status code and messages of a gRPC answer."""
    answer: Answer = {"code": code} | ({"error": details} if details else {})
    contents = [message_content(message) for message in messages]
    if call.rpc == "ModelStreamInfer":
        return answer | {"stream": in_order(contents, len(call.messages))}
    return answer | ({"content": reduce(contents[0], call)} if contents else {})


def in_order(contents: list[Any], n_requests: int) -> list[Any]:
    """Answers to one request keep their order; those to several may come in any, so they are sorted."""
    return contents if n_requests < 2 else sorted(contents, key=json.dumps)


def inflate(encoding: str, body: bytes) -> bytes:
    """The body before compression."""
    return gzip.decompress(body) if encoding == "gzip" else zlib.decompress(body)


def parse(body: bytes, media_type: str) -> Any:
    """JSON, server-sent events, or text; nothing where the body is empty."""
    text = body.decode(errors="backslashreplace")
    if media_type == "text/event-stream":
        events = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
        return [json.loads(event, parse_constant=str) for event in events]
    try:
        return json.loads(text, parse_constant=str) if text else None
    except json.JSONDecodeError:
        return {"text": text}


def with_binary_outputs(body: bytes, header_length: int) -> Any:
    """The JSON before the tensors, with the tensors as its outputs' ``data``."""
    content = json.loads(body[:header_length])
    start = header_length
    for output in content["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            output["data"] = unpack(output["datatype"], body[start : start + size])
            start += size
    assert start == len(body), "the sizes of the binary outputs are not the body's"
    return content


def message_content(message: Any) -> Any:
    """A message in protobuf's JSON form, its raw outputs as its outputs' ``data``."""
    content = MessageToDict(message, preserving_proto_field_name=True)
    inference = content.get("infer_response", content)
    raw_outputs = getattr(message, "infer_response", message)
    if "outputs" in inference and "raw_output_contents" in inference:
        del inference["raw_output_contents"]
        for output, raw in zip(inference["outputs"], raw_outputs.raw_output_contents, strict=True):
            output["data"] = unpack(output["datatype"], raw)
    return content


def reduce(content: Any, call: Call) -> Any:
    """What the case compares of the content."""
    if call.entries:
        content = picked(content, call.entries)
    return shape_of(content) if call.view is View.SHAPE else shortened(content)


def shortened(value: Any) -> Any:
    """Long lists as their length and digest."""
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if len(value) > MAX_ELEMENTS and not isinstance(value[0], dict):
            return {"n": len(value), "sha256": hashlib.sha256(json.dumps(value).encode()).hexdigest()}
        return [shortened(inner) for inner in value]
    return value


def picked(content: Any, names: Sequence[str]) -> Any:
    """A list of named entries, or the one such list in an object, with these entries only, in their order."""
    if isinstance(content, list):
        return [entry for entry in content if entry.get("name") in names]
    return {key: picked(value, names) if isinstance(value, list) else value for key, value in content.items()}


def shape_of(value: Any) -> Any:
    """Keys and kinds: a list is its first element's, as often as it comes."""
    if isinstance(value, dict):
        return {key: shape_of(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape_of(inner) for inner in value[:1]]
    return type(value).__name__
