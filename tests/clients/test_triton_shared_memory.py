"""What the shared-memory programs of Triton's client library do: inputs and outputs stay out of the messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
from numpy.typing import NDArray
from tests.clients.triton_rig import (
    LEFT,
    RIGHT,
    TritonServer,
    as_text,
    assert_sum_and_difference,
    inputs_of,
    outputs_of,
)
from tritonclient.utils import (
    InferenceServerException,
    serialize_byte_tensor,
    serialized_byte_size,
    triton_to_np_dtype,
)

both = pytest.mark.parametrize("module", [triton_http, triton_grpc], ids=["http", "grpc"])


@contextmanager
def region(client: Any, name: str, n_bytes: int) -> Iterator[Any]:
    """A segment of this program that the server knows by ``name``, gone afterwards on both sides."""
    key = f"/of-a-test-{uuid4().hex}"
    handle = shm.create_shared_memory_region(name, key, n_bytes)
    try:
        client.register_system_shared_memory(name, key, n_bytes)
        try:
            yield handle
        finally:
            client.unregister_system_shared_memory(name)
    finally:
        shm.destroy_shared_memory_region(handle)


def read(handle: Any, output: Any, offset: int = 0) -> NDArray[Any]:
    """An output from its region, as the answer describes it."""
    described = output if isinstance(output, dict) else {"datatype": output.datatype, "shape": list(output.shape)}
    array: NDArray[Any] = shm.get_contents_as_numpy(
        handle, triton_to_np_dtype(described["datatype"]), described["shape"], offset=offset
    )
    return array.copy()


def region_names(client: Any) -> set[str]:
    status = client.get_system_shared_memory_status()
    return {row["name"] for row in status} if isinstance(status, list) else set(status.regions)


@both
def test_numbers(triton: TritonServer, module: Any) -> None:
    """Two tensors a region, the second at an offset."""
    with triton.client(module) as client:
        client.unregister_system_shared_memory()
        client.unregister_cuda_shared_memory()
        half = LEFT.nbytes
        with region(client, "input_data", 2 * half) as sent, region(client, "output_data", 2 * half) as received:
            shm.set_shared_memory_region(sent, [LEFT])
            shm.set_shared_memory_region(sent, [RIGHT], offset=half)
            inputs, outputs = inputs_of(module, LEFT, RIGHT, "INT32"), outputs_of(module)
            for index in (0, 1):
                inputs[index].set_shared_memory("input_data", half, offset=index * half)
                outputs[index].set_shared_memory("output_data", half, offset=index * half)
            result = client.infer("simple", inputs, outputs=outputs)
            np.testing.assert_array_equal(read(received, result.get_output("OUTPUT0")), LEFT + RIGHT)
            np.testing.assert_array_equal(read(received, result.get_output("OUTPUT1"), half), LEFT - RIGHT)
            assert region_names(client) == {"input_data", "output_data"}
        assert region_names(client) == set()


@both
def test_strings(triton: TritonServer, module: Any) -> None:
    """A region a tensor, each of exactly its size."""
    with triton.client(module) as client:
        arrays = {
            "INPUT0": serialize_byte_tensor(as_text(LEFT)),
            "INPUT1": serialize_byte_tensor(as_text(RIGHT)),
            "OUTPUT0": serialize_byte_tensor(as_text(LEFT + RIGHT)),
            "OUTPUT1": serialize_byte_tensor(as_text(LEFT - RIGHT)),
        }
        sizes = {name: serialized_byte_size(array) for name, array in arrays.items()}
        inputs, outputs = inputs_of(module, as_text(LEFT), as_text(RIGHT), "BYTES"), outputs_of(module)
        for tensor in inputs + outputs:
            tensor.set_shared_memory(f"of_{tensor.name()}", sizes[tensor.name()])
        with (
            region(client, "of_INPUT0", sizes["INPUT0"]) as left,
            region(client, "of_INPUT1", sizes["INPUT1"]) as right,
            region(client, "of_OUTPUT0", sizes["OUTPUT0"]) as total,
            region(client, "of_OUTPUT1", sizes["OUTPUT1"]) as difference,
        ):
            shm.set_shared_memory_region(left, [arrays["INPUT0"]])
            shm.set_shared_memory_region(right, [arrays["INPUT1"]])
            result = client.infer("simple_string", inputs, outputs=outputs)
            assert read(total, result.get_output("OUTPUT0")).tolist() == as_text(LEFT + RIGHT).tolist()
            assert read(difference, result.get_output("OUTPUT1")).tolist() == as_text(LEFT - RIGHT).tolist()


@both
def test_the_same_objects_with_and_without(triton: TritonServer, module: Any) -> None:
    inputs, outputs = inputs_of(module, LEFT, RIGHT, "INT32"), outputs_of(module)
    with triton.client(module) as client, region(client, "again", 4 * LEFT.nbytes) as handle:
        shm.set_shared_memory_region(handle, [LEFT, RIGHT])
        for is_shared in (True, False, True):
            right = RIGHT if is_shared else RIGHT * 2
            if is_shared:
                for index, tensor in enumerate(inputs + outputs):
                    tensor.set_shared_memory("again", LEFT.nbytes, offset=index * LEFT.nbytes)
            else:
                for tensor, array in zip(inputs, (LEFT, right), strict=True):
                    tensor.set_data_from_numpy(array)
                for output in outputs:
                    output.unset_shared_memory()
            result = client.infer("simple", inputs, outputs=outputs)
            if not is_shared:
                assert_sum_and_difference(result, LEFT, right)
                continue
            np.testing.assert_array_equal(read(handle, result.get_output("OUTPUT0"), 2 * LEFT.nbytes), LEFT + right)
            np.testing.assert_array_equal(read(handle, result.get_output("OUTPUT1"), 3 * LEFT.nbytes), LEFT - right)


@both
def test_abuse(triton: TritonServer, module: Any) -> None:
    """BUG-073: past the region's end, sums that overflow, a name twice, names that are paths, outputs too large."""
    with triton.client(module) as client, region(client, "small", LEFT.nbytes):
        for size, offset in ((LEFT.nbytes, 4), (2**63 - 1, 2**63 - 1), (LEFT.nbytes + 1, 0)):
            inputs = inputs_of(module, LEFT, RIGHT, "INT32")
            inputs[0].set_shared_memory("small", size, offset=offset)
            with pytest.raises(InferenceServerException):
                client.infer("simple", inputs)
        outputs = outputs_of(module)
        outputs[0].set_shared_memory("small", 4)
        with pytest.raises(InferenceServerException):
            client.infer("simple", inputs_of(module, LEFT, RIGHT, "INT32"), outputs=outputs)
        outputs[0].set_shared_memory("nonesuch", LEFT.nbytes)
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'nonesuch'"):
            client.infer("simple", inputs_of(module, LEFT, RIGHT, "INT32"), outputs=outputs)
        refused = [
            ("small", "/other", 64),
            ("a", "../x", 64),
            ("b", "/nonesuch", 64),
            ("c", "", 64),
            ("d", "/a/../b", 64),
        ]
        for name, key, size in refused:
            with pytest.raises(InferenceServerException):
                client.register_system_shared_memory(name, key, size)
        assert region_names(client) == {"small"}
        assert_sum_and_difference(client.infer("simple", inputs_of(module, LEFT, RIGHT, "INT32")))


def test_a_region_unregistered_while_it_is_used(triton: TritonServer) -> None:
    """BUG-073: the request in flight keeps it; the program's own segment may be gone, too."""
    got: list[Any] = []
    tensor = triton_http.InferInput("INPUT0", [1, 4], "INT32")
    output = triton_http.InferRequestedOutput("OUTPUT0")
    numbers = np.array([[1, 2, 3, 4]], np.int32)
    with triton.client(triton_http, concurrency=2) as client:
        with region(client, "leaving", 2 * numbers.nbytes) as handle:
            shm.set_shared_memory_region(handle, [numbers])
            tensor.set_shared_memory("leaving", numbers.nbytes)
            output.set_shared_memory("leaving", numbers.nbytes, offset=numbers.nbytes)
            asked = client.async_infer("slow_identity_int32", [tensor], outputs=[output])
            n_seen = client.get_inference_statistics("slow_identity_int32")["model_stats"][0]["inference_count"]
            client.unregister_system_shared_memory("leaving")
            got.append(asked.get_result(timeout=20).get_output("OUTPUT0"))
            assert read(handle, got[0], numbers.nbytes).tolist() == numbers.tolist()
        after = client.get_inference_statistics("slow_identity_int32")["model_stats"][0]["inference_count"]
        assert after == n_seen + 1
