"""What stream entries hold: a message of ``wire.messages`` and who it is from.

A gateway holds one line to each engine; its end is a client with a number of its own, as on every wire. All lines of a
gateway share its output stream, so that one blocking read serves them.
"""

from typing import TypeVar

import msgspec

from tribar.core.errors import InvalidRequest, TooLarge
from tribar.core.ids import Uid
from tribar.core.requests import ModelCard
from tribar.wire.codec import MAX_FRAME_BYTES
from tribar.wire.messages import Abort, Drain, Hello, Ready, Stats, StepOutput, Submit

T = TypeVar("T")


class Bye(msgspec.Struct, tag=32, array_like=True, frozen=True):
    """The client hangs up: what it still has open is to be aborted."""


class Goodbye(msgspec.Struct, tag=33, array_like=True, frozen=True):
    """The engine hangs up on the client, or ends; nothing more comes from it."""


class Moved(msgspec.Struct, tag=34, array_like=True, frozen=True):
    """A gateway took the request from a dead engine and gave it to ``engine`` under this ``uid``, attempt + 1."""

    uid: Uid
    engine: str


class Gone(msgspec.Struct, tag=35, array_like=True, frozen=True):
    """A gateway's note to itself that the envelope's engine is dead: what that has said before lies before it."""


class Inward(msgspec.Struct, array_like=True, frozen=True):
    """To an engine. ``sequence`` counts the gateway's messages to all engines.

    Submits travel in another stream than the rest: ``after`` is the sequence of the last Submit that this client sent
    to this engine before (0: none), which keeps both in order.
    """

    gateway: str
    client: int
    sequence: int
    after: int
    message: Hello | Submit | Abort | Drain | Bye


class Outward(msgspec.Struct, array_like=True, frozen=True):
    """To a gateway. ``sequence`` counts an engine's entries to one client from 0; gateways' own notes carry -1."""

    engine: str
    client: int
    sequence: int
    message: Ready | StepOutput | Stats | Goodbye | Moved | Gone


class Registration(msgspec.Struct, array_like=True, frozen=True):
    """An engine as gateways find it. ``room``: entries that its request stream may hold. ``stats`` is its load."""

    card: ModelCard
    room: int
    is_leaving: bool = False
    stats: Stats = Stats()


_encoder = msgspec.msgpack.Encoder()
_inward = msgspec.msgpack.Decoder(Inward)
_outward = msgspec.msgpack.Decoder(Outward)
_registration = msgspec.msgpack.Decoder(Registration)


def encode(envelope: Inward | Outward | Registration) -> bytes:
    """The entry's bytes. Raises ``TooLarge`` over the frame limit of every wire."""
    body = _encoder.encode(envelope)
    if len(body) > MAX_FRAME_BYTES:
        raise TooLarge(f"a message of {len(body)} bytes is over the frame limit of {MAX_FRAME_BYTES} bytes")
    return body


def decode_inward(body: bytes) -> Inward:
    """Raises ``InvalidRequest`` for what is no such envelope."""
    return _decode(_inward, body)


def decode_outward(body: bytes) -> Outward:
    """Raises ``InvalidRequest`` for what is no such envelope."""
    return _decode(_outward, body)


def decode_registration(body: bytes) -> Registration:
    """Raises ``InvalidRequest`` for what is no registration."""
    return _decode(_registration, body)


def _decode(decoder: "msgspec.msgpack.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"an entry of {len(body)} bytes is no known envelope: {error}") from error
