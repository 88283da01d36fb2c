import random

from tribar.core.tensors import DataType
from tribar.modelserver.backends.python.messages import (
    Done,
    Execute,
    Finalize,
    ToWorker,
    WireRequest,
    WireResponse,
    WireTensor,
    front_end_frames,
    worker_frames,
)


def test_a_batch_crosses_whatever_pieces_it_comes_in() -> None:
    tensor = WireTensor("X", DataType.FP32, (2,), b"12345678", 8)
    requests = [WireRequest(i, [tensor], "id", ["Y"], {"a": True, "b": 1.5}, "s", 3, 1, 9) for i in range(20)]
    messages: list[ToWorker] = [Execute(requests, (4096, 64), [1, 2]), Finalize(), Execute([])]
    data = b"".join(worker_frames().frame(message) for message in messages)
    rng = random.Random(3)
    for _ in range(50):
        frames = worker_frames()
        received: list[ToWorker] = []
        at = 0
        while at < len(data):
            size = rng.choice([1, 3, 100, len(data)])
            received += frames.feed(data[at : at + size])
            at += size
        assert received == messages


def test_a_response_without_an_answer_and_with_an_error() -> None:
    done = Done(
        [None, WireResponse(error="bad", code="NOT_FOUND"), WireResponse(parameters={"p": "x"})], 1, 2, freed=[5]
    )
    assert list(front_end_frames().feed(front_end_frames().frame(done))) == [done]
