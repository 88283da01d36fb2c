"""Server-sent events read from bytes (WHATWG HTML, section 9.2.6), however they are cut."""

from tribar.core.errors import Unavailable

_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Chunks of a body -> the data of whole events.

    Lines end with LF, CRLF or CR; comments, other fields and events without data are passed over. At most
    ``max_event_bytes`` of an unfinished event are held.
    """

    def __init__(self, max_event_bytes: int = 8 << 20) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""
        self._data: list[bytes] = []
        self._is_at_start = True

    def push(self, chunk: bytes) -> list[bytes]:
        """The events that end in ``chunk``. Raises ``Unavailable`` for one that is too large."""
        events = self._read(self._rest + chunk, is_last=False)
        if len(self._rest) + sum(map(len, self._data)) > self._max_event_bytes:
            raise Unavailable(f"the stream has an event of more than {self._max_event_bytes} bytes")
        return events

    def finish(self) -> list[bytes]:
        """The event that the stream ended in: some servers leave out the line ends behind their last words."""
        return self._read(self._rest + b"\n\n", is_last=True)

    def _read(self, text: bytes, *, is_last: bool) -> list[bytes]:
        if self._is_at_start:
            if not is_last and _BOM.startswith(text[:3]) and len(text) < len(_BOM):
                self._rest = text
                return []
            text, self._is_at_start = text.removeprefix(_BOM), False
        held = b""
        if text.endswith(b"\r") and not is_last:  # perhaps half of a CRLF
            text, held = text[:-1], b"\r"
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        events: list[bytes] = []
        for line in lines:
            if not line:
                events += self._dispatch()
            else:
                self._field(line)
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))

    def _dispatch(self) -> list[bytes]:
        data = b"\n".join(self._data)
        self._data.clear()
        return [data] if data else []
