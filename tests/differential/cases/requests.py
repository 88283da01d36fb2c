"""How the cases write inference requests."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.differential.case import Grpc, Http
from tests.differential.tensors import pack

Tensor = Mapping[str, Any]
JSON_HEADERS = {"Content-Type": "application/json"}
CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field of a gRPC request that holds a datatype's elements one by one."""


def tensor(datatype: str, shape: Any, data: Any, name: str = "INPUT0", **parameters: Any) -> dict[str, Any]:
    """An input with its elements in JSON."""
    described = {"name": name, "datatype": datatype, "shape": shape, "data": data}
    return described | ({"parameters": parameters} if parameters else {})


def wanted(name: str = "OUTPUT0", **parameters: Any) -> dict[str, Any]:
    """An output that a request asks for."""
    return {"name": name} | ({"parameters": parameters} if parameters else {})


def post(path: str, content: Any, **headers: str) -> Http:
    """A POST of JSON, or of text and bytes as they are."""
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    body = content.encode() if isinstance(content, str) else content
    return Http("POST", path, body, JSON_HEADERS | {name.replace("_", "-"): value for name, value in headers.items()})


def infer(model: str, *inputs: Tensor, outputs: Sequence[Tensor] = (), **more: Any) -> Http:
    """An inference with everything in JSON."""
    content = {"inputs": list(inputs)} | ({"outputs": list(outputs)} if outputs else {}) | more
    return post(f"/v2/models/{model}/infer", content)


def infer_binary(
    model: str, *tensors: tuple[Tensor, bytes], outputs: Sequence[Tensor] = (), header_length: str = "", **more: Any
) -> Http:
    """An inference whose inputs follow the JSON in raw form, with each output in raw form unless ``outputs`` are given.

    ``header_length`` replaces the right one.
    """
    inputs = [
        {
            **{key: value for key, value in described.items() if key != "data"},
            "parameters": {"binary_data_size": len(raw)},
        }
        for described, raw in tensors
    ]
    content: dict[str, Any] = {"inputs": inputs} | more
    content |= {"outputs": list(outputs)} if outputs else {"parameters": {"binary_data_output": True}}
    head = json.dumps(content).encode()
    body = head + b"".join(raw for _, raw in tensors)
    headers = {"Content-Type": "application/octet-stream"}
    return Http(
        "POST",
        f"/v2/models/{model}/infer",
        body,
        headers | {"Inference-Header-Content-Length": header_length or str(len(head))},
    )


def raw(datatype: str, shape: Any, values: Sequence[Any], name: str = "INPUT0") -> tuple[Tensor, bytes]:
    """An input for ``infer_binary``."""
    return {"name": name, "datatype": datatype, "shape": shape}, pack(datatype, values)


def grpc_infer(
    model: str, *inputs: Tensor, contents: Sequence[bytes] | None = None, outputs: Sequence[Tensor] = (), **more: Any
) -> Grpc:
    """An inference over gRPC: with the inputs' elements one by one, or with ``contents`` as the raw ones."""
    return Grpc("ModelInfer", (grpc_request(model, *inputs, contents=contents, outputs=outputs, **more),))


def grpc_request(
    model: str, *inputs: Tensor, contents: Sequence[bytes] | None = None, outputs: Sequence[Tensor] = (), **more: Any
) -> dict[str, Any]:
    """The message of such an inference."""
    request: dict[str, Any] = {"model_name": model, "inputs": [grpc_input(given) for given in inputs], **more}
    if outputs:
        request["outputs"] = list(outputs)
    if contents is not None:
        request["raw_input_contents"] = [base64.b64encode(content).decode() for content in contents]
    return request


def grpc_input(given: Tensor) -> dict[str, Any]:
    """An input in protobuf's JSON form, its elements in the field of its datatype."""
    described = {key: value for key, value in given.items() if key not in {"data", "parameters"}}
    if "parameters" in given:
        described["parameters"] = {name: grpc_parameter(value) for name, value in given["parameters"].items()}
    if "data" not in given:
        return described
    values = given["data"]
    if given["datatype"] == "BYTES":
        values = [base64.b64encode(v if isinstance(v, bytes) else v.encode()).decode() for v in values]
    return described | {"contents": {CONTENTS[given["datatype"]]: values}}


def grpc_parameter(value: Any) -> dict[str, Any]:
    """A parameter in the field of its kind."""
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    return {kinds[type(value)]: value}
