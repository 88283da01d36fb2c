"""Names of models, as they come from callers and from folders."""

from tribar.core.errors import InvalidRequest

MAX_NAME_BYTES = 255
"""What a file system takes as one name."""
_SEPARATORS = frozenset("/\\%")
"""``%`` too: a name that somebody might decode once more would name another model then."""


def check_model_name(name: str) -> None:
    """Raises ``InvalidRequest`` for what cannot be the name of one folder inside a repository."""
    reason = _fault(name)
    if reason is not None:
        raise InvalidRequest(
            f"invalid model name {name[:MAX_NAME_BYTES]!r}: {reason}; give the name of a folder in the repository",
            param="model_name",
        )


def _fault(name: str) -> str | None:
    if not name.strip():
        return "it is empty"
    if name != name.strip():
        return "it begins or ends with a space"
    if name in {".", ".."}:
        return "it leads out of the repository"
    if not _SEPARATORS.isdisjoint(name):
        return "it has a '/', '\\' or '%'"
    if not name.isprintable():
        return "it has a character that cannot be printed"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        return f"it is longer than {MAX_NAME_BYTES} bytes"
    return None
