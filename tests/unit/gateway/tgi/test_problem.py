"""Errors in the shape of text-generation-inference."""

import orjson
import pytest
from starlette.exceptions import HTTPException

from tribar.core.errors import Internal, InvalidRequest, Overloaded, TooLarge, TribarError, Unavailable, Unsupported
from tribar.gateway.tgi.problem import error_json, problem, unhealthy


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("x", param="inputs"), 422, "validation"),
        (TooLarge("x"), 422, "validation"),
        (Unsupported("x"), 422, "validation"),
        (Overloaded("x", retry_after_s=1.2), 429, "overloaded"),
        (Unavailable("x"), 429, "overloaded"),
        (Internal("x"), 500, "generation"),
    ],
)
def test_errors(error: TribarError, status: int, kind: str) -> None:
    response = problem(error)
    assert response.status_code == status
    assert orjson.loads(response.body) == orjson.loads(error_json(error)) == {"error": "x", "error_type": kind}
    assert response.headers.get("retry-after") == ("2" if error.retry_after_s else None)


def test_foreign_errors_give_nothing_away() -> None:
    response = problem(ZeroDivisionError("secret"))
    assert response.status_code == 500
    assert b"secret" not in response.body


def test_errors_of_the_http_layer_keep_their_status() -> None:
    response = problem(HTTPException(415, "JSON only"))
    assert response.status_code == 415
    assert orjson.loads(response.body) == {"error": "JSON only", "error_type": "validation"}


def test_hostile_text_still_encodes() -> None:
    assert len(orjson.loads(problem(Overloaded("\ud800" + "x" * 10**6)).body)["error"]) == 2000


def test_a_health_check_that_fails() -> None:
    """503 and not 429: load balancers look at nothing else."""
    response = unhealthy(Unavailable("x", retry_after_s=1))
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert orjson.loads(response.body) == {"error": "x", "error_type": "healthcheck"}
