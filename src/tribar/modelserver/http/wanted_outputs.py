"""What a request wants of its outputs: which, and in which form."""

from typing import Final

from tribar.core.errors import InvalidRequest
from tribar.modelserver.http.fields import (
    Json,
    Object,
    as_bool,
    as_list,
    as_object,
    as_text,
    as_unsigned,
    member,
    refuse_unknown,
)
from tribar.modelserver.infer_call import Place, WantedOutput

_FIELDS: Final = frozenset({"name", "parameters"})


def read_wanted_outputs(root: Object, *, is_binary: bool) -> dict[str, WantedOutput] | None:
    """By name, None where the request does not say. ``is_binary`` holds for outputs that do not say.

    Raises ``unreadable_json``, and ``InvalidRequest`` for forms that exclude each other.
    """
    items = root.get("outputs")
    if items is None and "outputs" not in root:
        return None
    wanted: dict[str, WantedOutput] = {}
    for item in as_list(items, "outputs"):
        given = item if type(item) is dict else {}
        refuse_unknown(given, _FIELDS, "an output")
        name = as_text(member(given, "name"), "name")
        wanted[name] = _form(given.get("parameters", {}), is_binary=is_binary)
    return wanted or None


def _form(parameters: Json, *, is_binary: bool) -> WantedOutput:
    given = as_object(parameters, "parameters")
    form = WantedOutput(is_binary=is_binary)
    if not given:
        return form
    if "binary_data" in given:
        form.is_binary = as_bool(given["binary_data"], "binary_data")
    if "classification" in given:
        form.n_classes = as_unsigned(given["classification"], "classification")
    if "shared_memory_region" in given:
        form.place = read_place(given)
        for other in ("binary_data", "classification"):
            if given.get(other):
                raise InvalidRequest(f"Output can't set both 'shared_memory_region' and '{other}'", param=other)
    return form


def read_place(given: Object) -> Place:
    """The parameters of a tensor in shared memory. Raises ``unreadable_json``."""
    return Place(
        as_text(given["shared_memory_region"], "shared_memory_region"),
        as_unsigned(given.get("shared_memory_offset", 0), "shared_memory_offset"),
        as_unsigned(given.get("shared_memory_byte_size", 0), "shared_memory_byte_size"),
    )
