"""Read messages, run the model. The three descriptors are inherited from the front end."""

import argparse
import faulthandler
import logging
import os
import socket
import sys
from collections.abc import Sequence

from tribar.core.parent import die_with_parent
from tribar.modelserver.backends.python.arena import Arena, Window
from tribar.modelserver.backends.python.messages import Complete, Execute, Log, Open, Ready
from tribar.modelserver.backends.python.worker.api.module import install
from tribar.modelserver.backends.python.worker.channel import Channel
from tribar.modelserver.backends.python.worker.completion import complete
from tribar.modelserver.backends.python.worker.failure import describe
from tribar.modelserver.backends.python.worker.host import ModelHost
from tribar.modelserver.backends.python.worker.session import Session

EX_SOFTWARE = 70


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve one front end until it says to finalize, or is gone; returns the exit code."""
    options = _parse(arguments)
    if not die_with_parent(options.parent_pid):
        return EX_SOFTWARE
    faulthandler.enable()  # a crash in native code leaves its Python frames in the log
    channel = Channel(socket.socket(fileno=options.socket), Arena(options.outputs))
    first = channel.next_work()
    if isinstance(first, Complete):
        channel.send(complete(first))
        return 0
    if isinstance(first, Open):
        return _serve(channel, Window(options.inputs, is_writable=True), first)
    return EX_SOFTWARE


def _serve(channel: Channel, window: Window, opening: Open) -> int:
    session = Session(channel, window, opening)
    bound = install(session)
    try:
        host = ModelHost(session, opening, bound)
    except BaseException as error:
        channel.send(Ready(error=describe(error)))
        return 0
    channel.send(Ready())
    while isinstance(work := channel.next_work(), Execute):
        host.execute(work)
    try:
        host.finalize()
    except BaseException as error:
        channel.send(Log(logging.ERROR, f"finalize failed: {describe(error)}"))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of the model, daemon or not, do not delay the end


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run one instance of a Python model.")
    parser.add_argument("--socket", type=int, required=True, help="descriptor of the socket to the front end")
    parser.add_argument("--inputs", type=int, required=True, help="descriptor of the memory that the front end writes")
    parser.add_argument("--outputs", type=int, required=True, help="descriptor of the memory that this writes")
    parser.add_argument("--parent-pid", type=int, default=os.getppid(), help="exit at once unless this is the parent")
    return parser.parse_args(arguments)
