"""The recorded suite holds together, and its comparison can fail."""

import copy
import fnmatch
import json
import struct
from collections import Counter
from typing import Any

import pytest
from tests.differential import batching_script, fixtures
from tests.differential.case import Http, View
from tests.differential.cases import CASES_BY_SUBJECT
from tests.differential.compare import differences
from tests.differential.differences import DIFFERENCES
from tests.differential.observe import observe_http
from tests.differential.tensors import pack, unpack

SUBJECTS = [*CASES_BY_SUBJECT, "batching"]
NAMES = {subject: [case.name for case in cases] for subject, cases in CASES_BY_SUBJECT.items()} | {
    "batching": list(batching_script.SCRIPTS)
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_case_is_recorded_and_nothing_else(subject: str) -> None:
    assert list(fixtures.read(subject)) == NAMES[subject]


@pytest.mark.parametrize("subject", CASES_BY_SUBJECT)
def test_every_call_has_its_answer(subject: str) -> None:
    recorded = fixtures.read(subject)
    assert all(len(recorded[case.name]) == len(case.calls) for case in CASES_BY_SUBJECT[subject])


def test_names_are_unique() -> None:
    counts = Counter(name for names in NAMES.values() for name in names)
    assert not [name for name, count in counts.items() if count > 1]
    assert len(counts) >= 300


def test_every_difference_on_purpose_is_of_a_case_and_no_case_has_two() -> None:
    names = [name for subject in NAMES.values() for name in subject]
    patterns = [pattern for difference in DIFFERENCES for pattern in difference.cases]
    assert not [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]
    assert not [name for name in names if sum(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) > 1]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_recorded_answers_equal_themselves(subject: str) -> None:
    for answers in fixtures.read(subject).values():
        assert not [line for answer in answers for line in differences(answer, copy.deepcopy(answer))]


ANSWER = {"status": 200, "type": "application/json", "content": {"outputs": [{"name": "OUTPUT0", "data": [1, 2.0]}]}}
ERROR = {"status": 400, "type": "text/plain", "error": "unknown"}


@pytest.mark.parametrize(
    ("recorded", "answered", "n_differences"),
    [
        (ANSWER, ANSWER | {"status": 500}, 1),
        (ANSWER, {"status": 200, "type": "application/json", "content": {"outputs": []}}, 1),
        (ANSWER, {**ANSWER, "content": {"outputs": [{"name": "OUTPUT0", "data": [1, 3]}]}}, 1),
        (ANSWER, {**ANSWER, "content": {"outputs": [{"name": "OUTPUT0", "data": [True, 2]}]}}, 1),
        (ANSWER, {**ANSWER, "content": {"outputs": [{"name": "OUTPUT0", "data": [1.0, 2]}]}}, 0),
        (ANSWER, {**ANSWER, "binary": True}, 1),
        (ERROR, {"status": 400, "type": "application/json", "error": "said otherwise"}, 0),
        (ERROR, {"status": 400, "type": "text/plain", "error": ""}, 1),
        (ERROR, {"status": 400, "type": "text/plain", "content": None}, 2),
        ({"reason": "x"}, {}, 1),
    ],
)
def test_differences_are_seen(recorded: dict[str, Any], answered: dict[str, Any], n_differences: int) -> None:
    assert len(differences(recorded, answered)) == n_differences


def test_raw_outputs_are_decoded() -> None:
    output = {"name": "OUTPUT0", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"outputs": [output]}).encode()
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    answer = observe_http(Http("POST", "/"), 200, headers, head + struct.pack("<2f", 1.5, float("nan")))
    assert answer["content"]["outputs"][0]["data"] == [1.5, "nan"]
    assert answer["binary"]


def test_a_view_of_the_shape_forgets_values() -> None:
    body = b'[{"name":"a","count":5},{"name":"b","count":6}]'
    call = Http("GET", "/", view=View.SHAPE, entries=("b",))
    assert observe_http(call, 200, {}, body)["content"] == [{"name": "str", "count": "int"}]


@pytest.mark.parametrize(
    ("datatype", "values"),
    [("BF16", [1.0, -2.5]), ("FP16", [0.5]), ("BYTES", ["a", "", "zwölf"]), ("UINT64", [2**64 - 1]), ("BOOL", [True])],
)
def test_tensors_come_back(datatype: str, values: list[Any]) -> None:
    assert unpack(datatype, pack(datatype, values)) == values


def test_bytes_that_are_no_text_are_shown_in_hexadecimal() -> None:
    assert unpack("BYTES", pack("BYTES", [b"\xff\x00"])) == ["hex:ff00"]
