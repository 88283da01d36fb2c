import orjson
import pytest
from starlette.exceptions import HTTPException

from tribar.core.errors import ERRORS_BY_NAME, Overloaded, RateLimited
from tribar.gateway.problem import problem


@pytest.mark.parametrize("name", ERRORS_BY_NAME)
def test_every_error_has_its_status_and_shape(name: str) -> None:
    kind = ERRORS_BY_NAME[name]
    response = problem(kind("text", param="field", code="word"))
    assert response.status_code == kind.status
    assert orjson.loads(response.body) == {
        "error": {"message": "text", "type": kind.type, "param": "field", "code": "word"}
    }
    assert "retry-after" not in response.headers


@pytest.mark.parametrize(("seconds", "header"), [(0.0, "1"), (0.01, "1"), (1.0, "1"), (1.2, "2"), (60, "60")])
def test_retry_after_is_a_whole_number_of_at_least_one(seconds: float, header: str) -> None:
    """BUG-081: and never earlier than what was said."""
    for kind in (Overloaded, RateLimited):
        assert problem(kind("x", retry_after_s=seconds)).headers["retry-after"] == header


def test_hostile_text_still_encodes() -> None:
    """BUG-041."""
    body = orjson.loads(problem(Overloaded("\ud800" + "x" * 10**6, param="\udfff")).body)
    assert len(body["error"]["message"]) == 2000
    assert body["error"]["param"] == "?"


def test_foreign_errors_give_nothing_away() -> None:
    response = problem(ValueError("secret"))
    assert response.status_code == 500
    assert b"secret" not in response.body


def test_errors_of_the_http_layer() -> None:
    response = problem(HTTPException(405, "no", {"Allow": "POST"}))
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert orjson.loads(response.body)["error"]["type"] == "invalid_request_error"
