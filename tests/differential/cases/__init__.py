"""The suite by subject; each case's name is its own."""

from tests.differential.case import Case
from tests.differential.cases import (
    bodies,
    datatypes,
    generation,
    inference,
    json_requests,
    repository_control,
    server,
    shared_memory,
)

CASES_BY_SUBJECT: dict[str, list[Case]] = {
    "server": server.CASES,
    "datatypes": datatypes.CASES,
    "inference": inference.CASES,
    "json_requests": json_requests.CASES,
    "bodies": bodies.CASES,
    "generation": generation.CASES,
    "shared_memory": shared_memory.CASES,
    "repository_control": repository_control.CASES,
}
