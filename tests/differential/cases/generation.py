"""The generate extension, and inference as a stream of gRPC."""

from typing import Any

from tests.differential.case import Grpc, case
from tests.differential.cases.requests import grpc_request, post, tensor

TEXT = tensor("BYTES", [1], ["a"], "text_input")
EMPTY_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}
BODIES: dict[str, Any] = {
    "plain": {"text_input": "hello"},
    "list": {"text_input": ["hello"]},
    "list_of_two": {"text_input": ["hello", "you"]},
    "nested": {"text_input": [["hello"]]},
    "number": {"text_input": 5},
    "object": {"text_input": {"a": 1}},
    "null": {"text_input": None},
    "count": {"text_input": "hello", "count": 3},
    "count_zero": {"text_input": "hello", "count": 0},
    "count_text": {"text_input": "hello", "count": "3"},
    "count_fraction": {"text_input": "hello", "count": 1.5},
    "loud": {"text_input": "hello", "loud": True},
    "loud_number": {"text_input": "hello", "loud": 1},
    "weights": {"text_input": "hello", "weights": [1, 2.5]},
    "weights_scalar": {"text_input": "hello", "weights": 2},
    "id": {"text_input": "hello", "id": "x"},
    "unknown": {"text_input": "hello", "nope": 1, "more": {"a": [1]}},
    "parameters": {"text_input": "hello", "parameters": {"a": 1}},
    "no_input": {},
    "other_input": {"count": 1},
    "array": [],
    "broken": "{bad",
    "empty": "",
}


def stream(*requests: dict[str, Any]) -> Grpc:
    return Grpc("ModelStreamInfer", requests)


def counted(count: int, **more: Any) -> dict[str, Any]:
    return grpc_request("stream", TEXT, tensor("INT32", [1], [count], "count"), **more)


CASES = [
    *(case(f"generate_{name}", post("/v2/models/text/generate", body)) for name, body in BODIES.items()),
    *(
        case(f"generate_stream_{name}", post("/v2/models/text/generate_stream", BODIES[name]))
        for name in ("plain", "count", "id", "no_input", "broken", "empty")
    ),
    *(
        case(f"decoupled_{verb}_{count}", post(f"/v2/models/stream/{verb}", {"text_input": "a", "count": count}))
        for verb in ("generate", "generate_stream")
        for count in (0, 1, 3)
    ),
    case("decoupled_generate_error", post("/v2/models/stream/generate", {"text_input": "a", "count": 1, "fail_at": 0})),
    case(
        "decoupled_stream_error",
        post("/v2/models/stream/generate_stream", {"text_input": "a", "count": 3, "fail_at": 1}),
    ),
    case(
        "decoupled_stream_error_first",
        post("/v2/models/stream/generate_stream", {"text_input": "a", "count": 2, "fail_at": 0}),
    ),
    case("generate_unknown_model", post("/v2/models/nonesuch/generate", BODIES["plain"])),
    case("generate_stream_unknown_model", post("/v2/models/nonesuch/generate_stream", BODIES["plain"])),
    case("generate_version", post("/v2/models/text/versions/1/generate", BODIES["plain"])),
    case("generate_version_missing", post("/v2/models/text/versions/7/generate", BODIES["plain"])),
    case("generate_batched_model", post("/v2/models/simple_identity/generate", {"INPUT0": "hello"})),
    case("generate_fixed_model", post("/v2/models/fixed_fp32/generate", {"INPUT0": [1, 2, 3, 4, 5, 6]})),
    case("generate_model_error", post("/v2/models/faults/generate", {"INPUT0": "error"})),
    case("generate_model_raises", post("/v2/models/faults/generate", {"INPUT0": "raise"})),
    case("generate_stream_model_error", post("/v2/models/faults/generate_stream", {"INPUT0": "error"})),
    case("generate_not_utf8", post("/v2/models/faults/generate", {"INPUT0": "not_utf8"})),
    case("stream_one", stream(grpc_request("identity_fp32", tensor("FP32", [1, 1], [1]), id="1"))),
    case("stream_none", stream()),
    case("stream_bad_model", stream(grpc_request("nonesuch", TEXT, id="1"))),
    case(
        "stream_bad_amid_good",
        stream(
            *(
                grpc_request("identity_fp32", tensor("FP32", [1, 1], [1], name), id=str(number))
                for number, name in enumerate(("INPUT0", "NOPE", "INPUT0"))
            )
        ),
    ),
    *(case(f"stream_decoupled_{count}", stream(counted(count, id="1"))) for count in (0, 1, 3)),
    *(
        case(f"stream_decoupled_empty_final_{count}", stream(counted(count, parameters=EMPTY_FINAL)))
        for count in (0, 1, 3)
    ),
    case(
        "stream_empty_final_of_plain",
        stream(grpc_request("simple_identity", tensor("BYTES", [1, 1], ["a"]), parameters=EMPTY_FINAL)),
    ),
    case(
        "stream_decoupled_error",
        stream(
            grpc_request(
                "stream", TEXT, tensor("INT32", [1], [3], "count"), tensor("INT32", [1], [1], "fail_at"), id="1"
            )
        ),
    ),
]
