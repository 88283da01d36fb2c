"""Bodies: their size, pieces, compression and time are bounded; clients that leave are noticed."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable

import pytest
from tests.unit.modelserver.http.front_rig import LENGTH, Front, following, given, identity, wanted

from tribar.core.tensors import DataType
from tribar.modelserver.fake_service import FakeModel
from tribar.modelserver.http.compression import choose_encoding

PATH = "/v2/models/fp32/infer"
BODY = json.dumps({"inputs": [given("FP32", [1, 2], [1, 2])]}).encode()


async def test_any_number_of_pieces() -> None:
    """BUG-070: 70,000 pieces of one byte."""
    body = json.dumps({"inputs": [given("FP32", [1, 30_000], [1] * 30_000)]}).encode()
    answer = await Front().ask("POST", PATH, (body[i : i + 1] for i in range(len(body))))
    assert len(body) > 70_000
    assert len(answer.json["outputs"][0]["data"]) == 30_000


@pytest.mark.parametrize("headers", [{"Content-Length": "1001"}, {}])
@pytest.mark.parametrize("pieces", [[bytes(1001)], [bytes(1000), b"x"], [b""] + [b"x"] * 1001])
async def test_larger_bodies_are_refused(pieces: list[bytes], headers: dict[str, str]) -> None:
    """BUG-070: announced or not."""
    answer = await Front(max_body_bytes=1000).ask("POST", PATH, pieces, headers)
    assert answer.status == 413
    assert "1000 bytes" in answer.error


async def test_a_body_of_just_the_limit_is_read() -> None:
    """BUG-070."""
    body = BODY + b" " * (1000 - len(BODY))
    assert (await Front(max_body_bytes=1000).ask("POST", PATH, [body[:500], body[500:]])).status == 200


async def test_all_bodies_together_are_bounded() -> None:
    front = Front(max_body_bytes=1000, max_all_bodies_bytes=1500)
    held = asyncio.Event()
    left = asyncio.Event()

    def pieces() -> "list[bytes]":
        return [BODY + b" " * 700, b" "]

    class Slow:
        """Gives one piece and no more until it is told."""

        def __init__(self) -> None:
            self.n = 0

        async def receive(self) -> dict[str, object]:
            self.n += 1
            if self.n == 1:
                return {"type": "http.request", "body": bytes(900), "more_body": True}
            held.set()
            await left.wait()
            return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        """Nobody reads it."""

    scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "headers": []}
    slow = asyncio.create_task(front.app(scope, Slow().receive, send))
    await held.wait()
    refused = await front.ask("POST", PATH, pieces())
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    left.set()
    await slow
    assert (await front.ask("POST", PATH, pieces())).status == 200


async def test_a_body_that_does_not_arrive_is_given_up() -> None:
    front = Front(body_timeout_s=0.01)
    answer = await front.ask("POST", PATH, ())
    assert answer.status == 504
    assert "0.01 s" in answer.error


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY, mtime=0)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", gzip.compress(BODY, mtime=0)),
        ("GZIP", gzip.compress(BODY, mtime=0)),
        ("identity", BODY),
    ],
)
async def test_compressed_requests(encoding: str, body: bytes) -> None:
    """BUG-070."""
    assert (await Front().ask("POST", PATH, body, {"Content-Encoding": encoding})).status == 200


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", BODY, 400),
        ("deflate", BODY, 400),
        ("gzip", gzip.compress(BODY, mtime=0)[:-12], 400),
        ("gzip", gzip.compress(BODY, mtime=0) + b"x", 400),
        ("gzip", b"", 400),
        ("br", BODY, 501),
        ("gzip, gzip", BODY, 501),
        ("gzip", gzip.compress(bytes(50 * 2**20), mtime=0), 413),
        ("deflate", zlib.compress(b" " * (2**20 + 1)), 413),
    ],
)
async def test_compressed_requests_that_cannot_be_read(encoding: str, body: bytes, status: int) -> None:
    """BUG-070: the limit holds for what comes out, which is never made in full."""
    answer = await Front().ask("POST", PATH, body, {"Content-Encoding": encoding})
    assert answer.status == status
    assert answer.error


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.1, deflate;q=0.9", "deflate"),
        ("GZIP ; q=0.5", "gzip"),
        ("gzip;q=0", ""),
        ("gzip;q=x", ""),
        ("*", ""),
        ("br", ""),
        ("", ""),
    ],
)
def test_the_preferred_encoding_is_chosen(accepted: str, chosen: str) -> None:
    assert choose_encoding(accepted) == chosen


@pytest.mark.parametrize(
    ("encoding", "inflate"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)], ids=["gzip", "deflate"]
)
@pytest.mark.parametrize("n_elements", [2, 20_000])
async def test_answers_are_compressed(encoding: str, inflate: Callable[[bytes], bytes], n_elements: int) -> None:
    """BUG-070: the JSON's length is that before compression."""
    content = bytes(4 * n_elements)
    fields = {"inputs": [following("FP32", [1, n_elements], len(content))], "outputs": [wanted(binary_data=True)]}
    answer = await Front().infer_binary("fp32", fields, content, Accept_Encoding=encoding)
    assert answer.headers["content-encoding"] == encoding
    assert inflate(answer.body)[int(answer.headers[LENGTH]) :] == content


async def test_large_answers_come_in_pieces() -> None:
    content = bytes(range(256)) * 4096
    fields = {"inputs": [following("UINT8", [1, len(content)], len(content))], "outputs": [wanted(binary_data=True)]}
    answer = await Front(max_body_bytes=2**21).infer_binary("uint8", fields, content)
    assert answer.tail == content


@pytest.mark.parametrize("verb", ["infer", "generate", "generate_stream"])
async def test_work_for_a_client_that_leaves_is_cancelled(verb: str) -> None:
    model = FakeModel(identity(DataType.FP32).signature, gate=asyncio.Event())
    front = Front({"fp32": model})
    body = BODY if verb == "infer" else b'{"INPUT0": [1, 2]}'
    left = asyncio.Event()
    left.set()
    answer = await front.ask("POST", f"/v2/models/fp32/{verb}", body, left=left)
    assert answer.status == 499
    assert front.service.n_cancelled == 1


async def test_a_client_that_leaves_amid_its_body_is_let_go() -> None:
    left = asyncio.Event()
    left.set()
    assert (await Front().ask("POST", PATH, (), left=left)).status == 499


async def test_cancelling_from_outside_is_not_swallowed() -> None:
    front = Front({"fp32": FakeModel(identity(DataType.FP32).signature, gate=asyncio.Event())})
    task = asyncio.create_task(front.ask("POST", PATH, BODY))
    await front.service.was_asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert front.service.n_cancelled == 1
