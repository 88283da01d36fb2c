"""How many calls are inside, and what their requests may take: memory and time."""

import asyncio
from typing import Final

from tribar.modelserver.grpc.options import GrpcOptions
from tribar.modelserver.grpc.room import Room
from tribar.modelserver.overdue import Overdue


class Admission:
    """Shared by all calls of a server. ``pauses`` and ``arrivals`` watch messages of which more has to come."""

    def __init__(self, options: GrpcOptions, room: Room) -> None:
        self.room = room
        self.max_message_bytes: Final = options.max_message_bytes
        self.max_calls: Final = options.max_concurrent_calls
        self.pauses = Overdue(options.message_pause_s)
        self.arrivals = Overdue(options.message_timeout_s)
        self.n_calls = 0
        self.has_left = asyncio.Event()
        """Set by each call that leaves."""

    def enter(self) -> bool:
        """Whether there is a place for another call; then it is taken."""
        if self.n_calls >= self.max_calls:
            return False
        self.n_calls += 1
        return True

    def leave(self) -> None:
        """A call is over, and its work too."""
        self.n_calls -= 1
        self.has_left.set()
