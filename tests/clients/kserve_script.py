"""The ``kserve`` client on both protocols. Run as ``python kserve_script.py URL GRPC_ADDRESS``."""

import asyncio
import sys

import httpx  # type: ignore[import-not-found]
import numpy as np
from kserve import InferInput, InferRequest, InferResponse  # type: ignore[import-not-found]
from kserve.inference_client import (  # type: ignore[import-not-found]
    InferenceGRPCClient,
    InferenceRESTClient,
    RESTConfig,
)

LEFT = np.arange(16, dtype=np.int32).reshape(1, 16)
RIGHT = np.ones((1, 16), np.int32)


def request(model: str, *, is_binary: bool) -> InferRequest:
    inputs = []
    for name, array in (("INPUT0", LEFT), ("INPUT1", RIGHT)):
        tensor = InferInput(name, [1, 16], "INT32")
        tensor.set_data_from_numpy(array, binary_data=is_binary)
        inputs.append(tensor)
    return InferRequest(model_name=model, infer_inputs=inputs, request_id="of-kserve")


def check(response: InferResponse) -> None:
    assert (response.id, response.model_name) == ("of-kserve", "simple"), response
    np.testing.assert_array_equal(response.get_output_by_name("OUTPUT0").as_numpy(), LEFT + RIGHT)
    np.testing.assert_array_equal(response.get_output_by_name("OUTPUT1").as_numpy(), LEFT - RIGHT)


async def over_rest(url: str) -> None:
    async with InferenceRESTClient(RESTConfig(protocol="v2", retries=0)) as client:
        assert await client.is_server_live(url)
        assert await client.is_server_ready(url)
        assert await client.is_model_ready(url, "simple")
        assert not await client.is_model_ready(url, "nonesuch")
        for is_binary in (False, True):
            check(await client.infer(url, request("simple", is_binary=is_binary), model_name="simple"))
        refused = await refusal(client, url)
        assert refused.response.status_code == 404, refused
        assert "unknown model: 'nonesuch'" in str(refused), refused


async def refusal(client: InferenceRESTClient, url: str) -> httpx.HTTPStatusError:
    try:
        await client.infer(url, request("nonesuch", is_binary=False), model_name="nonesuch")
    except httpx.HTTPStatusError as error:
        return error
    raise AssertionError("no error for an unknown model")


async def over_grpc(address: str) -> None:
    async with InferenceGRPCClient(address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("simple")
        assert not await client.is_model_ready("nonesuch")
        for is_binary in (False, True):
            check(await client.infer(request("simple", is_binary=is_binary)))


def over_metadata(url: str) -> None:
    """What the client has no calls for."""
    assert httpx.get(f"{url}/v2").json()["extensions"]
    metadata = httpx.get(f"{url}/v2/models/simple").json()
    assert metadata["inputs"] == [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [-1, 16]} for i in (0, 1)]


if __name__ == "__main__":
    asyncio.run(over_rest(sys.argv[1]))
    asyncio.run(over_grpc(sys.argv[2]))
    over_metadata(sys.argv[1])
