"""Shared-memory regions that are not there, and requests that name them."""

from typing import Any

from tests.differential.case import Grpc, Http, case
from tests.differential.cases.requests import infer, post, tensor, wanted

SYSTEM = "/v2/systemsharedmemory"
CUDA = "/v2/cudasharedmemory"
REGION = {"key": "/nonesuch", "offset": 0, "byte_size": 64}
FP = tensor("FP32", [1, 2], [1, 2])


def register(content: Any, name: str = "region") -> Http:
    return post(f"{SYSTEM}/region/{name}/register", content)


def grpc_register(**changes: Any) -> Grpc:
    return Grpc("SystemSharedMemoryRegister", ({"name": "region", "key": "/nonesuch", "byte_size": "64"} | changes,))


def in_region(**parameters: Any) -> dict[str, Any]:
    return {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "parameters": parameters}


CASES = [
    case("system_status", Http("GET", f"{SYSTEM}/status"), Grpc("SystemSharedMemoryStatus")),
    case("cuda_status", Http("GET", f"{CUDA}/status"), Grpc("CudaSharedMemoryStatus")),
    case(
        "system_status_unknown",
        Http("GET", f"{SYSTEM}/region/nonesuch/status"),
        Grpc("SystemSharedMemoryStatus", ({"name": "nonesuch"},)),
    ),
    case(
        "cuda_status_unknown",
        Http("GET", f"{CUDA}/region/nonesuch/status"),
        Grpc("CudaSharedMemoryStatus", ({"name": "nonesuch"},)),
    ),
    *(
        case(f"register_{name}", register(content), Http("GET", f"{SYSTEM}/status"))
        for name, content in {
            "missing": REGION,
            "no_key": {"offset": 0, "byte_size": 64},
            "no_size": {"key": "/nonesuch", "offset": 0},
            "no_offset": {"key": "/nonesuch", "byte_size": 64},
            "key_number": REGION | {"key": 5},
            "key_parent": REGION | {"key": "/../x"},
            "key_reserved": REGION | {"key": "/triton_python_backend_shm_region_1"},
            "size_zero": REGION | {"byte_size": 0},
            "size_negative": REGION | {"byte_size": -1},
            "size_word": REGION | {"byte_size": "64"},
            "offset_negative": REGION | {"offset": -1},
            "offset_overflow": REGION | {"offset": 2**64 - 1},
            "empty": "",
            "broken": "{bad",
        }.items()
    ),
    case("register_name_parent", register(REGION, "..%2Fx")),
    case("register_without_name", post(f"{SYSTEM}/register", REGION)),
    case(
        "unregister_unknown",
        post(f"{SYSTEM}/region/nonesuch/unregister", ""),
        Grpc("SystemSharedMemoryUnregister", ({"name": "nonesuch"},)),
    ),
    case("unregister_all", post(f"{SYSTEM}/unregister", ""), Grpc("SystemSharedMemoryUnregister")),
    case(
        "cuda_unregister_unknown",
        post(f"{CUDA}/region/nonesuch/unregister", ""),
        Grpc("CudaSharedMemoryUnregister", ({"name": "nonesuch"},)),
    ),
    case(
        "cuda_register_bad_handle",
        post(f"{CUDA}/region/r/register", {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 64}),
    ),
    case("cuda_register_no_handle", post(f"{CUDA}/region/r/register", {"device_id": 0, "byte_size": 64})),
    case("grpc_register_missing", grpc_register()),
    case("grpc_register_no_key", grpc_register(key="")),
    case("grpc_register_no_name", grpc_register(name="")),
    case("grpc_register_size_zero", grpc_register(byte_size="0")),
    case(
        "grpc_cuda_register",
        Grpc("CudaSharedMemoryRegister", ({"name": "r", "raw_handle": "AAAA", "byte_size": "64"},)),
    ),
    case(
        "input_in_unknown_region",
        infer("identity_fp32", in_region(shared_memory_region="nonesuch", shared_memory_byte_size=8)),
    ),
    case("input_in_region_without_size", infer("identity_fp32", in_region(shared_memory_region="nonesuch"))),
    case(
        "input_in_region_and_data",
        infer(
            "identity_fp32", in_region(shared_memory_region="nonesuch", shared_memory_byte_size=8) | {"data": [1, 2]}
        ),
    ),
    case(
        "output_in_unknown_region",
        infer("identity_fp32", FP, outputs=[wanted(shared_memory_region="nonesuch", shared_memory_byte_size=8)]),
    ),
    case(
        "output_in_region_without_size", infer("identity_fp32", FP, outputs=[wanted(shared_memory_region="nonesuch")])
    ),
    case(
        "output_in_region_and_binary",
        infer(
            "identity_fp32",
            FP,
            outputs=[wanted(shared_memory_region="nonesuch", shared_memory_byte_size=8, binary_data=True)],
        ),
    ),
    case(
        "output_in_region_and_classes",
        infer(
            "identity_fp32",
            FP,
            outputs=[wanted(shared_memory_region="nonesuch", shared_memory_byte_size=8, classification=1)],
        ),
    ),
]
