"""Each query parameter of the tables at and beyond its limits, against the daemon."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.contract.daemon import Contract, events_of, header, on_one_database
from tests.contract.shapes import check_object
from tests.contract.tables import ENDPOINTS, INTEGER_TEXT, PROBLEM, Endpoint, Parameter

WITH_QUERY = [
    endpoint for endpoint in ENDPOINTS if any(parameter.place == "query" for parameter in endpoint.parameters)
]
EACH = [
    (endpoint, parameter) for endpoint in WITH_QUERY for parameter in endpoint.parameters if parameter.place == "query"
]


def valid(schema: dict[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield from schema["enum"]
    elif schema["type"] == "integer":
        default: int = schema["default"]
        yield from (str(schema.get(bound, default)) for bound in ("minimum", "maximum", "default"))
    elif schema["type"] == "boolean":
        yield from ("true", "false")
    elif schema.get("format") == "date-time":
        yield from ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678+01:00", "2026-01-02t03:04:05.123456789z")
        yield from ("2026-01-02T03:04:05-00:00", "2016-12-31T23:59:60Z", "0001-01-01T00:00:00Z")
    elif schema.get("pattern") == INTEGER_TEXT:
        yield from ("0", "-1", "255", "-9223372036854775808", "007", "-" + "9" * 400)
    else:
        yield "failed"


def invalid(schema: dict[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield "nonsense"
    elif schema["type"] == "integer":
        yield from ("x", "1.5", str(2**63))
        if "minimum" in schema:
            yield str(schema["minimum"] - 1)
        if "maximum" in schema:
            yield str(schema["maximum"] + 1)
    elif schema["type"] == "boolean":
        yield "maybe"
    elif schema.get("format") == "date-time":
        yield from ("yesterday", "2026-01-02", "2026-01-02T03:04:05", "2026-02-30T00:00:00Z", "2026-01-02T24:00:00Z")
    elif schema.get("pattern") == INTEGER_TEXT:
        yield from ("x", "+1", "1.5", "--1")


def url(daemon: Contract, endpoint: Endpoint, **query: str) -> str:
    path = endpoint.path.replace("{taskName}", "kinds").replace("{runId}", daemon.printed)
    return f"{path}?{urlencode(query)}"


def cases(values: Callable[[dict[str, Any]], Iterator[str]]) -> list[Any]:
    return [
        pytest.param(endpoint, parameter, value, id=f"{endpoint.path}?{parameter.name}={value[:30]}")
        for endpoint, parameter in EACH
        for value in values(parameter.schema)
    ]


@pytest.mark.parametrize(("endpoint", "parameter", "value"), cases(valid))
def test_valid_values(daemon: Contract, endpoint: Endpoint, parameter: Parameter, value: str) -> None:
    """A parameter accepts its limits, each of its values, and the empty text if that is one of them."""
    answer = daemon.get(url(daemon, endpoint, **{parameter.name: value}))
    assert (answer.status, answer.headers.get_content_type()) == (endpoint.status, endpoint.media_type)
    if endpoint.answer:
        check_object(answer.json(), endpoint.answer)


@on_one_database
@pytest.mark.parametrize(("endpoint", "parameter", "value"), cases(invalid))
def test_invalid_values(daemon: Contract, endpoint: Endpoint, parameter: Parameter, value: str) -> None:
    """An invalid value gets 422 with its name and value."""
    answer = daemon.get(url(daemon, endpoint, **{parameter.name: value}))
    assert (answer.status, header(answer, "Content-Type")) == (422, "application/problem+json")
    check_object(answer.json(), PROBLEM)
    (error,) = answer.json()["errors"]
    assert (error["location"], error["value"]) == (f"query.{parameter.name}", value)


DEFAULTS = [(endpoint, parameter) for endpoint, parameter in EACH if "default" in parameter.schema]


@pytest.mark.parametrize(
    ("endpoint", "parameter"), DEFAULTS, ids=[f"{default[0].path}?{default[1].name}" for default in DEFAULTS]
)
def test_default_values(daemon: Contract, endpoint: Endpoint, parameter: Parameter) -> None:
    """An absent parameter has its documented default, which the test's runs and lines can tell."""
    default = parameter.schema["default"]
    more = {"from": "0"} if parameter.name == "replayLimit" else {}
    absent = daemon.get(url(daemon, endpoint, **more)).body
    assert absent == daemon.get(url(daemon, endpoint, **more, **{parameter.name: str(default)})).body
    assert absent != daemon.get(url(daemon, endpoint, **more, **{parameter.name: str(default + 1)})).body


def test_pages(daemon: Contract, kinds: list[dict[str, Any]]) -> None:
    """Limit is the size of a page, offset its begin, and total the number of all matches."""
    assert len(kinds) == 60
    assert len(daemon.ok("/api/tasks/kinds/runs")["items"]) == 50
    for offset in (0, 7, 59, 60, 1000):
        body = daemon.ok("/api/tasks/kinds/runs", limit=7, offset=offset)
        assert body["items"] == kinds[offset : offset + 7]
        assert body["total"] == 60
    body = daemon.ok("/api/runs", task_name="kinds", limit=1, offset=3)
    assert ([run["id"] for run in body["runs"]], body["total"]) == ([kinds[3]["id"]], 60)


def test_no_matches(daemon: Contract) -> None:
    """Without matches, the list is empty and total is 0."""
    for path, name in (("/api/tasks/shut/runs", "items"), ("/api/runs?task_name=shut", "runs")):
        body = daemon.get(path).json()
        assert (body[name], body["total"]) == ([], 0)


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        ({}, 5000, 1000),
        ({"from": "0"}, 0, 5000),
        ({"from": "-1"}, 5999, 1),
        ({"from": "5990"}, 5990, 10),
        ({"from": "-99999"}, 0, 5000),
        ({"from": "0", "replayLimit": "1"}, 0, 1),
        ({"from": "0", "replayLimit": "50000"}, 0, 6000),
    ],
)
def test_anchor_and_cap(daemon: Contract, query: dict[str, str], first: int, count: int) -> None:
    """``from`` counts from the first line or, if negative, from the end; replayLimit caps the replay."""
    events = events_of(daemon.get(url(daemon, ENDPOINTS[-1], **query)).body)
    assert [int(event["id"]) for event in events if event.get("event") == "line"] == list(range(first, first + count))


@pytest.mark.parametrize("name", ["a", "A.b_c:d-e", "a" * 100])
def test_valid_task_names(daemon: Contract, name: str) -> None:
    """Names of 1 to 100 characters of the pattern are valid; here, no task has them."""
    assert daemon.get(f"/api/tasks/{name}/runs").status == 404


@on_one_database
@pytest.mark.parametrize("name", ["a" * 101, "a%20b", "%C3%A9", "a%0A", "a%2Fb"])
def test_invalid_task_names(daemon: Contract, name: str) -> None:
    """An invalid name gets 422 with the name."""
    answer = daemon.get(f"/api/tasks/{name}/runs")
    assert answer.status == 422
    assert [error["location"] for error in answer.json()["errors"]] == ["path.taskName"]


@pytest.mark.parametrize("run_id", ["0" * 25, "0" * 27, "0" * 25 + "I", "0" * 25 + "a", "0" * 26 + "%0A"])
def test_invalid_ids(daemon: Contract, run_id: str) -> None:
    """An id that is not 26 characters of the alphabet gets 422, an unknown id 404."""
    answer = daemon.get(f"/api/runs/{run_id}/log/stream")
    assert answer.status == 422
    assert [error["location"] for error in answer.json()["errors"]] == ["path.runId"]
    assert daemon.get(f"/api/runs/{'0' * 26}/log/stream").status == 404
