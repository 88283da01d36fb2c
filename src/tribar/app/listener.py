"""The socket of the HTTP server, bound before anything slow happens so that a taken port is known at once."""

import errno
import ipaddress
import socket

from tribar.core.errors import Conflict, Forbidden, InvalidRequest

_BACKLOG = 2048

_MAX_UNSENT_BYTES = 4096
"""What is sent and not acknowledged does not count: a long line is still filled."""


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not listen yet; the caller closes it. ``port`` 0 takes any free one.

    Raises ``InvalidRequest`` for an address that is none of this machine's, ``Conflict`` for a port in use and
    ``Forbidden`` for one that this user may not have.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidRequest(f"--host {host}: no such address\ntry: --host 127.0.0.1", param="host") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        match error.errno:
            case errno.EADDRINUSE:
                raise _in_use(host, port) from error
            case errno.EACCES:
                raise Forbidden(f"port {port} needs more rights than this user has\ntry: --port 8000") from error
            case _:
                message = f"cannot listen on {host}: {error.strerror}\ntry: --host 127.0.0.1"
                raise InvalidRequest(message, param="host") from error
    return listener


def listen(listener: socket.socket) -> None:
    """Begin to queue connections. Raises ``Conflict`` where another process bound the port and was faster.

    They inherit a small limit on what the kernel holds unsent, so that a reader behind a slow or lossy line is known as
    one at once, and not after hundreds of small events that could have been one.
    """
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        raise _in_use(*listener.getsockname()[:2]) from error


def _in_use(host: str, port: int) -> Conflict:
    return Conflict(f"port {port} on {host} is in use\ntry: --port 0 for any free one")


def url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches the server."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        return f"http://localhost:{port}"
    return f"http://[{host}]:{port}" if address.version == 6 else f"http://{host}:{port}"


def is_public(listener: socket.socket) -> bool:
    """Whether other machines can reach it."""
    return not ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
