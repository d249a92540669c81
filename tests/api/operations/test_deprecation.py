"""Deprecated operations and parameters, by made-up ones."""

from datetime import date
from types import SimpleNamespace
from typing import Any

import falcon
import falcon.testing
import pytest

from api import openapi
from api.app import PathRoute
from api.auth.identity import Role
from api.operations.operation import Access, Call, Operation
from api.operations.parameters import Deprecation, QueryParameter
from api.server.memory_watch import MemoryWatch
from api.worker_context import Context

OLD = Deprecation(date(2027, 1, 1), "Use size.")
HEADER = "@1798761600"


def answer(_context: Context, call: Call) -> None:
    """Answer with nothing."""
    call.no_content()


LIMIT = QueryParameter("limit", str, {"type": "string"}, description="The size.", aliases=("max",), deprecated=OLD)
SIZE = QueryParameter("size", str, {"type": "string"})
OPERATIONS = [
    Operation("GET", "/operation", access=Access.PUBLIC, role=Role.ANYBODY, answers={204: None}, deprecated=OLD)(
        answer
    ),
    Operation("GET", "/parameter", access=Access.PUBLIC, role=Role.ANYBODY, answers={204: None}, query=(LIMIT, SIZE))(
        answer
    ),
]


@pytest.fixture
def client() -> falcon.testing.TestClient:
    app = falcon.App()
    application: Any = SimpleNamespace(context=SimpleNamespace(auth=None), memory=MemoryWatch(lambda: None))
    for operation in OPERATIONS:
        app.add_route(operation.path, PathRoute(application, [operation]))
    return falcon.testing.TestClient(app)


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("/operation", HEADER),
        ("/parameter", None),
        ("/parameter?size=2", None),
        ("/parameter?size=2&limit=2", HEADER),
        ("/parameter?max=2", HEADER),
    ],
)
def test_the_header(client: falcon.testing.TestClient, url: str, header: str | None) -> None:
    """A response has the date of the deprecation if the request uses a deprecated operation or parameter."""
    response = client.simulate_get(url)
    assert (response.status_code, response.headers.get("Deprecation")) == (204, header)


def test_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """The OpenAPI document marks deprecated operations and parameters, with the date, the remedy and the header."""
    monkeypatch.setattr(openapi, "OPERATIONS", OPERATIONS)
    paths = openapi.document()["paths"]
    operation, parameter = paths["/operation"]["get"], paths["/parameter"]["get"]
    assert (operation["deprecated"], operation["description"]) == (True, "Deprecated since 2027-01-01. Use size.")
    assert "deprecated" not in parameter
    old, new = parameter["parameters"]
    assert old["description"] == "The size. Also accepted as max. Deprecated since 2027-01-01. Use size."
    assert (old["deprecated"], "deprecated" in new) == (True, False)
    for description in (operation, parameter):
        assert "Deprecation" in description["responses"]["204"]["headers"]
