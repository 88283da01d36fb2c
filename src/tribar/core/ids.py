"""Identifiers that must not be mixed up."""

from typing import NamedTuple, NewType

BlockId = NewType("BlockId", int)
"""One KV block of a runner. Block 0 is the null block: padding, never owned."""

Row = NewType("Row", int)
"""One persistent row of a runner: a running sequence occupies exactly one."""

NULL_BLOCK = BlockId(0)


class Uid(NamedTuple):
    """A request inside tribar: made by the engine client, never by the caller.

    ``client`` is drawn at random when a client connects, ``counter`` counts its requests,
    ``attempt`` grows when the same request is sent to another engine.
    """

    client: int
    counter: int
    attempt: int = 0
