"""The body of errors."""

import http.client
from typing import Any

import pytest

from tests.contract.daemon import Contract, on_one_database
from tests.contract.shapes import check_object
from tests.contract.tables import PROBLEM

pytestmark = on_one_database
JSON = {"Content-Type": "application/json"}
LIST = "/api/runs"


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/api/runs/bulk/delete", "{", JSON, 400),
        ("GET", LIST, None, {}, 401),
        ("POST", "/api/tasks/shut/run", None, {}, 403),
        ("GET", "/api/nothing", None, {}, 404),
        ("GET", "/api/runs/00000000000000000000000000", None, {}, 404),
        ("POST", "/api/tasks/nothing/run", None, {}, 404),
        ("DELETE", LIST, None, {}, 405),
        ("POST", "/api/tasks/web/run", None, {}, 409),
        ("POST", "/api/tasks/kinds/run", "{" + " " * (1 << 20), JSON, 413),
        ("POST", "/api/runs/bulk/delete", "ids=", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("GET", LIST, None, {"Host": "elsewhere.example"}, 421),
        ("GET", f"{LIST}?limit=0&offset=x", None, {}, 422),
        ("POST", "/api/runs/bulk/delete", '{"ids": 1, "filter": {"search": 2}}', JSON, 422),
    ],
)
def test_errors(
    daemon: Contract, method: str, path: str, body: str | None, headers: dict[str, str], status: int
) -> None:
    """Every error is problem+json with all fields of its type, the same status, and about:blank as type."""
    strange = status in (401, 421)
    answer = daemon.over_tcp(method, path, body, headers if strange else {**headers, **daemon.admin})
    error_body = answer.json()
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    check_object(error_body, PROBLEM)
    assert set(error_body) == {problem.name for problem in PROBLEM}
    assert (error_body["status"], error_body["type"]) == (status, "about:blank")
    assert error_body["title"] == {422: "Unprocessable Content", 413: "Content Too Large"}.get(
        status, http.client.responses[status]
    )
    assert bool(error_body["errors"]) == (status == 422)


def test_default_type(document: dict[str, Any]) -> None:
    """The type is about:blank by default."""
    assert document["components"]["schemas"]["Problem"]["properties"]["type"]["default"] == "about:blank"


def test_details(daemon: Contract) -> None:
    """Each error has an element with its location, its message, and a value of any type."""
    errors = daemon.get("/api/tasks/a%20b/runs?limit=0&sortField=x").json()["errors"]
    assert {(error["location"], error["value"]) for error in errors} == {
        ("path.taskName", "a b"),
        ("query.limit", "0"),
        ("query.sortField", "x"),
    }
    body = {"match_all": True, "filter": {"status": "nonsense", "exit_code_min": [1]}}
    errors = daemon.request("POST", "/api/runs/bulk/delete", body).json()["errors"]
    assert {error["location"]: error["value"] for error in errors} == {
        "body.filter.status": "nonsense",
        "body.filter.exit_code_min": [1],
    }
    assert all(error["message"] for error in errors)


def test_occurrences(daemon: Contract) -> None:
    """The title is the same each time, and the instance differs."""
    first, two = (daemon.get("/api/nothing").json() for _ in range(2))
    assert first["title"] == two["title"]
    assert first["instance"] != two["instance"]
