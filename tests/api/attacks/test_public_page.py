"""The configured status page discloses its title, names, states, shares of days, and public notes, and nothing else."""

import re
from collections.abc import Iterator

import gevent
import pytest

from api.schemas.status_page import DAYS, MOST_INCIDENTS, KeptPage
from store.notifications import end_incident, publish_incident
from store.runs.daily_outcomes import DAY_MS
from store.runs.writes import insert_run
from store.tasks import StoredInstance, set_instance, update_task, upsert_task
from supervisor.ipc.messages import StatusPage
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run, now_ms
from tests.support.waiting import until

SECRET = '{"description": "SECRET", "group": "SECRET", "tags": ["SECRET"], "run": "echo SECRET"}'
PAGE = StatusPage(
    title="Shop <b>",
    text="Ask us:\nhelp@example.com",
    sections={"Front & back": ["web", "hidden", "gone"]},
    embed=["https://example.com"],
)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that publishes a service and a task, with a failure a week ago and incidents."""
    daemon = Daemon(tmp_path_factory.mktemp("page"), public=["web", "backup", "gone"], status_page=PAGE)
    now = now_ms()
    for name, kind in (("web", "service"), ("backup", "task"), ("hidden", "task")):
        upsert_task(daemon.db, name, kind, SECRET)
        update_task(daemon.db, name, acknowledged='{"by": "SECRET", "note": "SECRET", "until": null, "run": "x"}')
    today = now // DAY_MS * DAY_MS
    for state, since in (
        ("backoff", today - 8 * DAY_MS),
        ("running", today - 7 * DAY_MS),
        ("stopped", today - DAY_MS),
    ):
        set_instance(daemon.db, StoredInstance("web", 0, state, None, since, 0, detail="SECRET"))
    for ago, reason in ((7, "failed"), (7, "succeeded"), (6, "succeeded")):
        at = today - ago * DAY_MS + 3_600_000
        run = make_run(task_name="backup", created_at=at, started_at=at, ended_at=at + 5000, status="ended")
        insert_run(daemon.db, run._replace(end_reason=reason))
    publish_incident(daemon.db, "web", "We look\ninto <it>", now)
    publish_incident(daemon.db, "backup", "Disk was full", now - DAY_MS)
    end_incident(daemon.db, "backup", now)
    publish_incident(daemon.db, "hidden", "SECRET", now)
    yield daemon
    daemon.close()


def text_of(daemon: Daemon) -> str:
    page = daemon.get("/status", unix=False)
    assert page.status == 200
    return page.body.decode()


def test_contents(published: Daemon) -> None:
    """The page has the title, the text, sections, 90 days of each unit, and current and past incidents."""
    text = text_of(published)
    assert "<h1>Shop &lt;b&gt;</h1>" in text
    assert "Ask us:\nhelp@example.com" in text
    assert "<h2>Front &amp; back</h2>" in text
    assert text.index("<b>backup</b>") < text.index("Front &amp; back")
    assert text.count("<i ") == 2 * DAYS
    assert 'aria-label="85.71 % up in 90 days"' in text
    assert 'aria-label="66.66 % succeeded in 90 days"' in text
    assert len(re.findall(r'<i class="bad" title="[^"]*: 0 % up">', text)) == 1
    assert len(re.findall(r'<i class="bad" title="[^"]*: 50 % succeeded">', text)) == 1
    assert text.index("Current incidents") < text.index("We look\ninto &lt;it&gt;") < text.index("Past incidents")
    assert text.index("Past incidents") < text.index("Disk was full")


def test_nothing_else(published: Daemon) -> None:
    """Other units, notes that are not public, definitions, and times and numbers of runs are not disclosed."""
    text = text_of(published)
    for word in ("SECRET", "hidden", "gone", "echo", "api"):
        assert word not in text
    times = re.findall(r'<time datetime="([^"]*)"', text)
    assert len(times) == 3, "one of the open incident, two of the past one"


def test_frames(published: Daemon, daemon: Daemon) -> None:
    """Only the configured sites may show the page in a frame; scripts and styles of others stay forbidden."""
    policy = published.get("/status", unix=False).headers["Content-Security-Policy"]
    assert "frame-ancestors https://example.com;" in policy
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "frame-ancestors 'none'" in published.get("/", unix=False).headers["Content-Security-Policy"]
    assert daemon.get("/status", unix=False).status == 404


def test_size_is_bounded(published: Daemon) -> None:
    """However many incidents there are, the page shows the newest ones."""
    with published.lock:
        for number in range(MOST_INCIDENTS + 10):
            publish_incident(published.db, "web", f"incident {number}", now_ms())
            end_incident(published.db, "web", now_ms())
    until(lambda: f"incident {MOST_INCIDENTS + 9}<" in text_of(published), "the page to be made again")
    assert len(re.findall(r"incident \d+<", text_of(published))) == MOST_INCIDENTS


def test_made_once_for_all() -> None:
    """Requests during two seconds share one text, also those that arrive while it is made."""
    now_s = 100.0
    made: list[float] = []
    kept = KeptPage(lambda: now_s)

    def make() -> str:
        made.append(now_s)
        gevent.sleep(0)  # as a read of the database, which lets others run
        return f"made at {now_s}"

    readers = [gevent.spawn(kept.get, make) for _ in range(10)]
    gevent.joinall(readers, raise_error=True)
    assert {reader.value for reader in readers} == {"made at 100.0"}
    now_s = 101.9
    assert kept.get(make) == "made at 100.0"
    now_s = 102.0
    assert kept.get(make) == "made at 102.0"
    assert made == [100.0, 102.0]
