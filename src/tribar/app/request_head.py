"""What RFC 9112 wants a server to refuse in a request's head and uvicorn's parser lets pass."""

import re
from collections.abc import Sequence

from tribar.core.errors import InvalidRequest, TribarError, Unsupported

_HOST = re.compile(rb"[\w.~!$&'()*+,;=%:\[\]-]*", re.ASCII)


def fault_of(version: str, headers: Sequence[tuple[bytes, bytes]]) -> tuple[int, TribarError] | None:
    """The HTTP status and the error for a head that must not be run; None for a sound one. Names are lower case.

    HTTP/1.1 needs one ``Host`` (RFC 9112, section 3.2). Of codings only ``chunked`` is undone here, and HTTP/1.0 has
    none (section 6.1); where a body ends must not be a matter of opinion, or the next request is read out of it.
    """
    if version not in {"1.0", "1.1"}:
        return 505, Unsupported(f"HTTP/{version} is not spoken on this port: use HTTP/1.1")
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (version == "1.1" and not hosts) or not all(map(_HOST.fullmatch, hosts)):
        return 400, InvalidRequest("an HTTP/1.1 request has exactly one Host header, a host and perhaps a port")
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if not codings:
        return None
    if version == "1.0":
        return 400, InvalidRequest("HTTP/1.0 has no Transfer-Encoding: send a Content-Length")
    if codings != [b"chunked"]:
        return 501, Unsupported("of Transfer-Encoding only chunked is supported: send the body as it is")
    return None
