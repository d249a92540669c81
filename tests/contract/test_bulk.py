"""Bulk delete, rerun and restore, and the selector."""

from collections.abc import Iterator
from typing import Any

import pytest

from store.database import open_reader
from store.runs.ids import is_ulid
from tests.contract.daemon import Contract, on_one_database
from tests.contract.shapes import check_object
from tests.contract.tables import AFFECTED, FILTER, PROBLEM, SELECTOR, TRIGGERED, Field

KINDS = ("delete", "rerun", "restore")
WRONG: dict[str, Any] = {"string": 1, "integer": "1", "boolean": "yes", "array": "x", "object": []}


@pytest.fixture
def three(daemon: Contract) -> Iterator[list[str]]:
    """Ended runs: two of one task, one of another."""
    ids = [daemon.trigger(task) for task in ("twice", "twice", "other")]
    for run_id in ids:
        daemon.ended(run_id)
    yield ids
    daemon.post("/api/runs/bulk/restore", {"ids": ids})


def bulk(daemon: Contract, kind: str, **selector: Any) -> Any:
    body = daemon.post(f"/api/runs/bulk/{kind}", selector)
    check_object(body, TRIGGERED if kind == "rerun" else AFFECTED)
    return body


def test_delete_and_restore(daemon: Contract, three: list[str]) -> None:
    """A deletion marks rows, which stay stored; a restore brings them back; both return the number of rows."""
    before = [daemon.run(run_id) for run_id in three]
    assert bulk(daemon, "delete", ids=three)["affected"] == 3
    assert [daemon.get(f"/api/runs/{run_id}").status for run_id in three] == [404] * 3
    reader = open_reader(daemon.stored_in, limit_s=None)
    (stored,) = reader.rows(f"SELECT count(*) FROM runs WHERE id IN ({', '.join('?' * 3)})", three)
    reader.close()
    assert stored[0] == 3
    assert bulk(daemon, "delete", ids=three)["affected"] == 0
    assert bulk(daemon, "restore", ids=three)["affected"] == 3
    assert [daemon.run(run_id) for run_id in three] == before
    assert bulk(daemon, "restore", ids=three)["affected"] == 0


def test_only_ended_runs_are_deleted(daemon: Contract, three: list[str]) -> None:
    """A deletion does not change pending and running runs."""
    ids = [daemon.running, daemon.pending, three[0]]
    assert bulk(daemon, "delete", ids=ids)["affected"] == 1
    assert [daemon.run(run_id)["status"] for run_id in ids[:2]] == ["running", "pending"]


def test_rerun(daemon: Contract, three: list[str]) -> None:
    """Each task of the selected runs is run once, and the entries are the new runs."""
    triggered = bulk(daemon, "rerun", ids=three)["triggered"]
    assert sorted(rerun_run["task_name"] for rerun_run in triggered) == ["other", "twice"]
    for rerun_run in triggered:
        assert is_ulid(rerun_run["run_id"])
        assert rerun_run["run_id"] not in three
        assert daemon.ended(rerun_run["run_id"])["taskName"] == rerun_run["task_name"]
    assert bulk(daemon, "rerun", ids=[])["triggered"] == []


def test_selection(daemon: Contract, three: list[str]) -> None:
    """Ids count unless match_all is true; then filter and except_ids count."""
    mine = {"search": three[2]}
    first_id, two, three_ = three
    assert bulk(daemon, "delete", match_all=False, ids=[first_id], filter=mine, except_ids=[first_id])["affected"] == 1
    assert bulk(daemon, "restore", ids=[first_id])["affected"] == 1
    assert (
        bulk(daemon, "delete", match_all=True, ids=[first_id, two], filter=mine, except_ids=[three_])["affected"] == 0
    )
    assert (
        bulk(daemon, "delete", match_all=True, ids=[first_id, two], filter=mine, except_ids=[first_id])["affected"] == 1
    )
    assert bulk(daemon, "restore", match_all=True, filter=mine)["affected"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_all_fields_are_optional(daemon: Contract, kind: str) -> None:
    """An empty selector, nulls where allowed, and a schema link select nothing."""
    for selector in ({}, {"except_ids": None, "ids": None}, {"$schema": "http://localhost/RunSelector.json"}):
        body = bulk(daemon, kind, **selector)
        assert body.get("affected", 0) == 0
        assert body.get("triggered", []) == []


@on_one_database
@pytest.mark.parametrize("one", [*SELECTOR, *FILTER], ids=lambda field: field.name)
def test_types(daemon: Contract, one: Field) -> None:
    """A value of another type, or a null that is not allowed, gets 422 with the field, and nothing is done."""
    inner = one in FILTER
    for value in (WRONG[one.type], *([None] if inner else [])):
        body = {"filter": {one.name: value}} if inner else {one.name: value}
        answer = daemon.request("POST", "/api/runs/bulk/delete", {"match_all": True, **body})
        assert answer.status == 422
        check_object(answer.json(), PROBLEM)
        place = f"body.filter.{one.name}" if inner else f"body.{one.name}"
        assert [error["location"] for error in answer.json()["errors"]] == [place]


@on_one_database
@pytest.mark.parametrize("kind", KINDS)
def test_body_is_required(daemon: Contract, kind: str) -> None:
    """A request without a body gets 400."""
    answer = daemon.request("POST", f"/api/runs/bulk/{kind}", headers={"Content-Type": "application/json"})
    assert answer.status == 400
    check_object(answer.json(), PROBLEM)
