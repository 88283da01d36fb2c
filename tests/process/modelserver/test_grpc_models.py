"""The gRPC front before the real service, with models of the fake backend."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as aio_client
from tests.process.modelserver import grpc_rig
from tests.process.modelserver.grpc_rig import expect, tensor
from tests.unit.modelserver.repository_rig import config_text, parameter, serving, write_model

VALUES = np.array([[1, 2, 3]], np.float32)


async def test_a_model_from_load_to_unload(tmp_path: Path) -> None:
    """BUG-074: each failure on the way under its own code."""
    write_model(tmp_path, "model", versions=("1", "2"))
    write_model(tmp_path, "broken", config_text(parameter("fail", "it is broken")))
    async with (
        serving(tmp_path) as (service, _),
        grpc_rig.serving(service) as address,
        aio_client.InferenceServerClient(address) as client,
    ):
        await expect("NOT_FOUND", client.infer("model", [tensor(VALUES)]))
        await client.load_model("model")
        await client.load_model("broken")
        assert await client.is_model_ready("model")
        result = await client.infer("model", [tensor(VALUES)], request_id="7")
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), VALUES)
        assert (result.get_response().id, result.get_response().model_version) == ("7", "2")
        assert "it is broken" in await expect("INTERNAL", client.infer("broken", [tensor(VALUES)]))
        await expect("INVALID_ARGUMENT", client.infer("model", [tensor(VALUES[0])]))
        await expect("INVALID_ARGUMENT", client.infer("model", [tensor(VALUES)], model_version="x"))
        await expect("NOT_FOUND", client.infer("model", [tensor(VALUES)], model_version="7"))
        found = (await client.get_inference_statistics("model", "2")).model_stats[0]
        assert (found.name, found.version, found.inference_count) == ("model", "2", 1)
        assert (await client.get_model_config("model")).config.backend == "fake"
        await client.unload_model("model")
        assert not await client.is_model_ready("model")
        await expect("NOT_FOUND", client.infer("model", [tensor(VALUES)]))
        await expect("INTERNAL", client.load_model("nonesuch"))


async def test_a_deadline_takes_the_request_out_of_the_queue(tmp_path: Path) -> None:
    """BUG-074: 50 ms of patience behind a request that takes longer; what nobody waits for is never executed."""
    entered, released = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        entered.set()
        await released.wait()

    write_model(tmp_path, "slow", config_text(parameter("sleep_s", "1")))
    async with (
        serving(tmp_path, sleep=sleep) as (service, _),
        grpc_rig.serving(service) as address,
        aio_client.InferenceServerClient(address) as client,
    ):
        await client.load_model("slow")
        first = asyncio.create_task(client.infer("slow", [tensor(VALUES)]))
        await entered.wait()
        await expect("DEADLINE_EXCEEDED", client.infer("slow", [tensor(VALUES)], client_timeout=0.05))
        while not (found := await statistics(client)).inference_stats.fail.count:
            assert found.inference_count == 0
        released.set()
        assert (await first).as_numpy("OUTPUT0").shape == VALUES.shape
        assert (await statistics(client)).inference_count == 1


async def statistics(client: aio_client.InferenceServerClient) -> Any:
    return (await client.get_inference_statistics("slow")).model_stats[0]
