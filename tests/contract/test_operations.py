"""Operations whose shapes are not given: each is there, under its method and path."""

from typing import Any

import pytest

from tests.contract.daemon import Contract, on_one_database
from tests.contract.tables import ENDPOINTS, OUR_OWN, WITHOUT_SHAPES
from tests.support.waiting import until

STREAMS = [shape for shape in WITHOUT_SHAPES if shape[1].endswith("/stream")]


def name(operation: tuple[str, str]) -> str:
    return " ".join(operation)


@on_one_database
@pytest.mark.parametrize("operation", WITHOUT_SHAPES, ids=name)
def test_operations_are_documented(document: dict[str, Any], operation: tuple[str, str]) -> None:
    """The document describes each operation with its path parameters by name."""
    method, path = operation
    described = document["paths"][path][method.lower()]
    names = {parameter["name"] for parameter in described.get("parameters", ()) if parameter["in"] == "path"}
    assert names == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def filled(daemon: Contract, path: str) -> str:
    of_services = path.endswith(("{taskName}/restart", "{taskName}/stop"))
    values = {"taskName": "web" if of_services else "prints", "runId": daemon.printed, "lineNumber": "0"}
    if "{notificationId}" in path:
        values["notificationId"] = daemon.ok("/api/notifications")["items"][0]["id"]
    return path.format(**values)


@pytest.mark.parametrize("operation", [shape for shape in WITHOUT_SHAPES if shape not in STREAMS], ids=name)
def test_operations_are_answered(daemon: Contract, operation: tuple[str, str]) -> None:
    """The daemon carries out each operation."""
    method, path = operation
    body: Any = {"ids": []} if "/bulk/" in path else None
    where = filled(daemon, path)
    if method == "DELETE":
        where = f"/api/runs/{daemon.ended(daemon.trigger('other'))['id']}"
    answer = daemon.request(method, f"{where}?q=1" if path.endswith("/search") else where, body)
    assert answer.status in (200, 204), answer.body
    if path.endswith("{taskName}/stop"):  # other tests look at lists twice
        until(lambda: {run["status"] for run in daemon.runs("web")} == {"ended"}, "the service to stop")
    if answer.status == 200 and not path.endswith("/raw"):
        assert answer.headers.get_content_type() == "application/json"


@pytest.mark.parametrize("operation", STREAMS, ids=name)
def test_streams_are_opened(daemon: Contract, operation: tuple[str, str]) -> None:
    """The daemon opens each stream and sends events."""
    stream = daemon.stream(operation[1])
    assert (stream.status, stream.headers.get_content_type()) == (200, "text/event-stream")
    stream.close()


@on_one_database
def test_local_operations(daemon: Contract) -> None:
    """The identity is for loopback and the socket, the password for the socket only; a proxy is neither."""
    forwarded = {**daemon.admin, "X-Forwarded-For": "192.0.2.1"}
    assert daemon.over_tcp("GET", "/api/daemon/identity", headers=daemon.admin).status == 200
    assert daemon.over_tcp("GET", "/api/daemon/identity", headers=forwarded).status == 403
    assert daemon.ok("/api/local/credentials")["password"]
    for headers in (daemon.admin, forwarded):
        assert daemon.over_tcp("GET", "/api/local/credentials", headers=headers).status == 403
    assert daemon.request("GET", "/api/local/credentials", headers=forwarded).status == 403


def test_notifications(daemon: Contract) -> None:
    """Unread notifications are counted; one can be marked read and unread, and all marked read."""
    path = f"/api/notifications/{daemon.ok('/api/notifications')['items'][0]['id']}"
    counts = []
    for what in (f"{path}/unread", f"{path}/read", f"{path}/unread", "/api/notifications/read"):
        assert daemon.request("POST", what).status == 204
        counts.append(daemon.ok("/api/notifications/unreadCount")["count"])
    assert [count - counts[1] for count in counts[:3]] == [1, 0, 1]
    assert counts[3] == 0


def test_delete(daemon: Contract) -> None:
    """A deleted run does not exist any more."""
    run_id = daemon.ended(daemon.trigger("other"))["id"]
    assert daemon.request("DELETE", f"/api/runs/{run_id}").status == 204
    assert daemon.get(f"/api/runs/{run_id}").status == 404


@on_one_database
def test_raw_is_plain_text(daemon: Contract) -> None:
    """The raw log is the whole log as text/plain."""
    answer = daemon.get(f"/api/runs/{daemon.printed}/log/raw")
    assert answer.headers.get_content_type() == "text/plain"
    assert answer.body == b"".join(b"%d\n" % number for number in range(6000))


def test_stop(daemon: Contract) -> None:
    """A running run is stopped."""
    run_id = daemon.trigger("lives")
    until(lambda: daemon.texts(run_id), "its first line")
    assert daemon.request("POST", f"/api/runs/{run_id}/stop").status == 204
    assert daemon.ended(run_id)["endReason"] == "stopped"


def test_stop_many(daemon: Contract) -> None:
    """Every running run that the selector matches is stopped."""
    run_id = daemon.trigger("lives")
    until(lambda: daemon.texts(run_id), "its first line")
    assert daemon.post("/api/runs/bulk/stop", {"ids": [run_id]})["affected"] == 1
    assert daemon.ended(run_id)["endReason"] == "stopped"


def test_operations_are_listed_once() -> None:
    """No operation is in the lists twice."""
    expected = [*((endpoint.method, endpoint.path) for endpoint in ENDPOINTS), *WITHOUT_SHAPES]
    assert len(expected) == len(set(expected)) == 34


@on_one_database
def test_all_operations_are_listed(document: dict[str, Any]) -> None:
    """The document has exactly the operations of the lists."""
    expected = [*((endpoint.method, endpoint.path) for endpoint in ENDPOINTS), *WITHOUT_SHAPES, *OUR_OWN]
    described = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    assert sorted(described) == sorted(expected)
