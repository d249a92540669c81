"""The page and the badges without authentication disclose names and states of published tasks and services alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.runs.writes import insert_run
from store.tasks import StoredInstance, set_instance, update_task, upsert_task
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run

SECRET = '{"description": "SECRET", "run": "echo SECRET"}'


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that publishes a service, a task, and a name that does not exist."""
    daemon = Daemon(Path(tmp_path_factory.mktemp("published")), public=["web", "backup", "gone"])
    for name, kind in (("web", "service"), ("backup", "task"), ("hidden", "task")):
        upsert_task(daemon.db, name, kind, SECRET)
    set_instance(daemon.db, StoredInstance("web", 0, "running", None, 1000, 0, detail="SECRET"))
    insert_run(daemon.db, make_run(task_name="backup", status="ended", end_reason="timeout"))
    yield daemon
    daemon.close()


def test_status_page(published: Daemon) -> None:
    """The page shows the name and state of each published unit, and nothing else."""
    page = published.get("/status", unix=False)
    assert page.status == 200
    text = page.body.decode()
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert "<b>web</b>" in text
    assert '<span class="badge good">running</span>' in text
    assert "<b>backup</b>" in text
    assert '<span class="badge bad">timeout</span>' in text
    assert "1 of 2 failing" in text
    assert "hidden" not in text
    assert "gone" not in text
    assert "SECRET" not in text


def test_badges(published: Daemon) -> None:
    """A badge shows the state of one published unit, and pages of any site may include it."""
    badge = published.get("/badge/web.svg", unix=False)
    assert badge.headers["Content-Type"] == "image/svg+xml"
    assert badge.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert 'aria-label="web: running"' in badge.body.decode()
    update_task(published.db, "backup", paused=True)
    assert "backup: paused" in published.get("/badge/backup.svg", unix=False).body.decode()
    update_task(published.db, "backup", paused=False)


@pytest.mark.parametrize("name", ["hidden.svg", "gone.svg", "nothing.svg", "web", "web.png", "web.svg.svg"])
def test_unpublished_names_are_not_found(published: Daemon, name: str) -> None:
    """Unpublished names get the same answer as unknown names."""
    answer = published.get(f"/badge/{name}", unix=False)
    assert answer.status == 404
    assert answer.json["detail"] == "Not published"


def test_nothing_is_published_by_default(daemon: Daemon) -> None:
    """Without the key ``public``, there is neither a page nor a badge."""
    assert daemon.get("/status", unix=False).status == 404
    assert daemon.get("/badge/backup.svg", unix=False).status == 404
