"""Where Redis is, and how an engine's loop gets a socket to it: opened and introduced in another thread."""

import contextlib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import hiredis
from redis.connection import parse_url

from tribar.core.errors import InvalidRequest, Unavailable
from tribar.wire.redis_stream.resp import pack

READ_BYTES = 64 * 1024
DEFAULT_PORT = 6379


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A redis://, rediss:// or unix:// URL, checked. ``shown`` has no password in it."""

    url: str

    def __post_init__(self) -> None:
        """Raises ``InvalidRequest`` naming the URL."""
        self._parts()

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        scheme, separator, rest = self.url.partition("://")
        return scheme + separator + rest.rpartition("@")[2].partition("?")[0]

    @property
    def path(self) -> str | None:
        """Its unix socket, if it is on one."""
        path = self._parts().get("path")
        return None if path is None else str(path)

    @property
    def host(self) -> str:
        """Its host, where it is not on a unix socket."""
        return str(self._parts().get("host", "localhost"))

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._parts().get("port", DEFAULT_PORT))

    def tls(self) -> ssl.SSLContext | None:
        """For rediss://, with the options that redis-py takes in such a URL."""
        parts = self._parts()
        if not self.url.startswith("rediss://"):
            return None
        context = ssl.create_default_context(cafile=parts.get("ssl_ca_certs"), capath=parts.get("ssl_ca_path"))
        if parts.get("ssl_cert_reqs") == "none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif str(parts.get("ssl_check_hostname", True)).lower() in {"false", "0", "no"}:
            context.check_hostname = False
        if "ssl_certfile" in parts:
            context.load_cert_chain(parts["ssl_certfile"], parts.get("ssl_keyfile"), parts.get("ssl_password"))
        return context

    def introduction(self) -> list[tuple[str, ...]]:
        """The commands that a connection begins with."""
        parts = self._parts()
        commands: list[tuple[str, ...]] = []
        if "password" in parts:
            user = (parts["username"],) if "username" in parts else ()
            commands.append(("AUTH", *user, parts["password"]))
        if parts.get("db"):
            commands.append(("SELECT", str(parts["db"])))
        return [*commands, ("PING",)]

    def dial(self, timeout_s: float) -> socket.socket:
        """A non-blocking socket on which the next command may be sent. Blocks for at most ``timeout_s`` per step.

        Raises ``OSError``, or ``Unavailable`` where the server refuses the password or is still loading.
        """
        sock = self._connect(timeout_s)
        try:
            sock.settimeout(timeout_s)
            for command in self.introduction():
                _ask(sock, command)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return sock

    def _connect(self, timeout_s: float) -> socket.socket:
        if self.path is not None:
            local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            local.settimeout(timeout_s)
            with contextlib.ExitStack() as undo:
                undo.callback(local.close)
                local.connect(self.path)
                undo.pop_all()
            return local
        plain = socket.create_connection((self.host, self.port), timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        tls = self.tls()
        if tls is None:
            return plain
        try:
            return tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def _parts(self) -> Mapping[str, Any]:
        try:
            return dict(parse_url(self.url))  # type: ignore[no-untyped-call]
        except ValueError as error:
            raise InvalidRequest(f"no Redis can be at {self.shown}: {error}", param="redis_url") from error


def _ask(sock: socket.socket, command: tuple[str, ...]) -> None:
    sock.sendall(pack(command))
    reader = hiredis.Reader()
    while (reply := reader.gets()) is False:
        data = sock.recv(READ_BYTES)
        if not data:
            raise Unavailable("Redis closed the connection")
        reader.feed(data)
    if isinstance(reply, hiredis.ReplyError):
        raise Unavailable(f"Redis refuses {command[0]}: {reply}")
