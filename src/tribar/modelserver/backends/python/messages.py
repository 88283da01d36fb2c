"""What the front end and a worker say to each other: one frame = 4-byte little-endian length + msgpack of a message.

Both ends are made of the same source and belong to one server, so there is no version in here.
"""

import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from tribar.core.inference import ParameterValue
from tribar.core.tensors import DataType

BlockRef = tuple[int, int]
"""Offset in the writer's memory file and size of the block that holds a message's tensors."""


class WireTensor(msgspec.Struct, array_like=True, gc=False):
    """A tensor. ``data`` is its binary form, or where that starts in the message's block."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]
    data: bytes | int = b""
    n_bytes: int = 0


class WireRequest(msgspec.Struct, array_like=True):
    """A request of a batch. ``outputs`` are the wanted names, None all. ``flags`` are Triton's sequence flags."""

    uid: int
    inputs: list[WireTensor]
    id: str = ""
    outputs: list[str] | None = None
    parameters: dict[str, ParameterValue] = {}
    sequence_id: int | str = 0
    flags: int = 0
    priority: int = 0
    timeout_us: int = 0


class WireResponse(msgspec.Struct, array_like=True):
    """A response, or an error with the name of its code in place of one."""

    outputs: list[WireTensor] = []
    parameters: dict[str, ParameterValue] = {}
    error: str | None = None
    code: str = "INTERNAL"


class Open(msgspec.Struct, array_like=True, tag=True):
    """Load the model. ``arguments`` are those of its ``initialize``; ``outputs`` what it can be asked for."""

    path: str
    arguments: dict[str, str]
    outputs: list[str]
    is_decoupled: bool
    has_metrics: bool


class Complete(msgspec.Struct, array_like=True, tag=True):
    """Only ask the model's ``auto_complete_config`` about ``config``, JSON in Triton's layout."""

    path: str
    config: str


class Execute(msgspec.Struct, array_like=True, tag=True):
    """Run a batch. ``freed`` are blocks of the worker's memory that the front end has done with."""

    requests: list[WireRequest]
    block: BlockRef | None = None
    freed: list[int] = []


class Freed(msgspec.Struct, array_like=True, tag=True):
    """Blocks that the sender of this has done with, where no other message takes them along."""

    blocks: list[int]


class Answer(msgspec.Struct, array_like=True, tag=True):
    """To a worker's ``Infer`` or ``Question``: ``value`` is a question's. ``is_last``: nothing follows for the call."""

    call: int
    response: WireResponse
    is_last: bool = True
    value: bool = False
    block: BlockRef | None = None
    freed: list[int] = []


class Taken(msgspec.Struct, array_like=True, tag=True):
    """The answer to ``Stalled``: the reader of a request has taken these responses, the oldest."""

    uid: int
    n_responses: int
    n_bytes: int


class Finalize(msgspec.Struct, array_like=True, tag=True):
    """Finalize the model and end."""


class Ready(msgspec.Struct, array_like=True, tag=True):
    """The answer to ``Open`` and ``Complete``. ``error`` says why the model cannot be used."""

    error: str | None = None
    config: str = ""


class Done(msgspec.Struct, array_like=True, tag=True):
    """The model's ``execute`` has returned, or (``error``) raised.

    ``responses`` match the batch, each is final; a None is left to a response sender.
    """

    responses: list[WireResponse | None]
    start_ns: int
    end_ns: int
    error: str | None = None
    block: BlockRef | None = None
    freed: list[int] = []


class Sent(msgspec.Struct, array_like=True, tag=True):
    """What a response sender sends; a final one may come without a response."""

    uid: int
    response: WireResponse | None
    is_final: bool
    block: BlockRef | None = None
    freed: list[int] = []


class Stalled(msgspec.Struct, array_like=True, tag=True):
    """The model waits until the reader of a request has taken some of its responses."""

    uid: int


class Infer(msgspec.Struct, array_like=True, tag=True):
    """Business logic scripting: ask another model. The first answer comes by itself, each further one for ``More``."""

    call: int
    model_name: str
    model_version: str
    request: WireRequest
    is_decoupled: bool
    block: BlockRef | None = None
    freed: list[int] = []


class More(msgspec.Struct, array_like=True, tag=True):
    """The call's next answer, please; or (``is_over``) no further ones."""

    call: int
    is_over: bool = False


class Question(msgspec.Struct, array_like=True, tag=True):
    """``topic`` is ``cancelled`` (the request ``uid``), ``ready``, ``load`` or ``unload`` (a model)."""

    call: int
    topic: str
    uid: int = 0
    model_name: str = ""
    model_version: str = ""
    config: str = ""
    files: dict[str, bytes] = {}
    unload_dependents: bool = False


class Log(msgspec.Struct, array_like=True, tag=True):
    """A record for the server's log; ``level`` is logging's number."""

    level: int
    text: str


class Measure(msgspec.Struct, array_like=True, tag=True):
    """A change of a metric: ``verb`` is ``increment``, ``set`` or ``observe``."""

    kind: str
    name: str
    description: str
    labels: dict[str, str]
    buckets: list[float]
    verb: str
    value: float


ToWorker = Open | Complete | Execute | Freed | Answer | Taken | Finalize
ToFrontEnd = Ready | Done | Sent | Stalled | Infer | More | Question | Log | Measure | Freed

_LENGTH = struct.Struct("<I")

T = TypeVar("T")


class Frames(Generic[T]):
    """Encodes messages into frames and cuts the peer's bytes back into messages."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[T]") -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = decoder.decode
        self._rest = bytearray()

    def frame(self, message: ToWorker | ToFrontEnd) -> bytes:
        """The frame of ``message``."""
        body = self._encode(message)
        return _LENGTH.pack(len(body)) + body

    def feed(self, data: bytes) -> Iterator[T]:
        """The messages that ``data`` completes, in order."""
        if not self._rest and len(data) > _LENGTH.size and len(data) - _LENGTH.size == _LENGTH.unpack_from(data)[0]:
            yield self._decode(memoryview(data)[_LENGTH.size :])
            return
        self._rest += data
        start, n_held = 0, len(self._rest)
        while n_held - start >= _LENGTH.size:
            end = start + _LENGTH.size + _LENGTH.unpack_from(self._rest, start)[0]
            if end > n_held:
                break
            body = bytes(memoryview(self._rest)[start + _LENGTH.size : end])
            start = end
            yield self._decode(body)
        del self._rest[:start]


def worker_frames() -> Frames[ToWorker]:
    """The worker's end."""
    return Frames(msgspec.msgpack.Decoder(ToWorker))


def front_end_frames() -> Frames[ToFrontEnd]:
    """The front end's end."""
    return Frames(msgspec.msgpack.Decoder(ToFrontEnd))
