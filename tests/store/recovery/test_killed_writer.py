import contextlib
import signal
import subprocess
import sys
from functools import partial

import pytest

from store import events
from store.backends import postgres
from store.database import open_reader, open_writer
from store.runs.filter import RunFilter
from store.runs.run_pages import count_runs, list_runs
from tests.store.making import T0
from tests.support.paths import ROOT

pytestmark = pytest.mark.own
WRITER = """
import os, select, sys
from store import events
from store.backends import postgres
from store.database import open_writer
from store.runs.writes import insert_run, update_run
from store.store_thread import StoreThread
from tests.store.making import T0, make_run

postgres.BUSY_WAIT_S = 60.0
store = StoreThread(open_writer(sys.argv[1]))

def start(n):
    run = make_run(created_at=T0 + n, task_name=f"t{n % 7}")
    def change(db):
        insert_run(db, run)
        update_run(db, run.id, status="ended", end_reason="failed", exit_code=n % 3)
        return events.append(db, "run.ended", {"id": run.id}, T0)
    def done(seq):
        os.write(1, b"%d %s\\n" % (seq, run.id.encode()))
    store.submit(change, done)

n = 0
while True:
    for _ in range(1 + n % 20):
        start(n)
        n += 1
    select.select([store], [], [])
    store.drain()
"""


@pytest.mark.parametrize("lines", [1, 150])
def test_killed_writer(path: str, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All writes acknowledged before a kill -9 are stored, each run with its event, and none partially."""
    monkeypatch.setattr(postgres, "BUSY_WAIT_S", 60.0)
    acknowledged = []
    with subprocess.Popen([sys.executable, "-c", WRITER, path], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged.append(line.split())
            if len(acknowledged) == lines:
                process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    if not acknowledged[-1][1:] or len(acknowledged[-1][1]) < 26:
        acknowledged.pop()
    if path.startswith("postgresql:"):
        # A server finishes the statements it received: wait until the session of the killed client has ended.
        open_writer(path).close()
    for opening in (partial(open_reader, limit_s=None), open_writer):
        db = opening(path)
        stored = {event.seq: event.body["id"] for event in events.since(db, 0, limit=10**6)}
        assert list(stored) == list(range(1, len(stored) + 1))
        assert all(stored[int(seq)] == run_id for seq, run_id in acknowledged)
        runs, total = list_runs(db, RunFilter(), limit=10**6, now_ms=T0)
        assert {run.id for run in runs} == set(stored.values())
        assert {(run.status, run.end_reason) for run in runs} == {("ended", "failed")}
        assert len(runs) == total == count_runs(db, RunFilter(reasons={"failed"}))
        with db.snapshot() as view:
            assert not view.sqlite or view.rows("PRAGMA integrity_check") == [("ok",)]
        db.close()


def test_readers_in_other_processes(path: str) -> None:
    """Readers in other processes see only whole transactions while the writer is killed and restarted."""
    code = (
        "import sys; from store import events; from tests.store.making import reader_once_created\n"
        "from store.runs.filter import RunFilter\n"
        "from store.runs.run_pages import list_runs\n"
        "db = reader_once_created(sys.argv[1]); last = 0\n"
        "for _ in sys.stdin:\n"
        "    runs, total = list_runs(db, RunFilter(), limit=5, now_ms=0)\n"
        "    assert total >= last and all(run.status == 'ended' for run in runs), (total, last)\n"
        "    with db.snapshot() as view:\n"
        "        [(a, b)] = view.rows('SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM outbox)')\n"
        "    assert a == b >= total; last = total\n"
        "assert last >= 200, last\n"
    )
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", code, path], cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for target in (50, 50, 100):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, path], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(target):
                assert writer.stdout.readline()
                for reader in readers:
                    assert reader.stdin is not None
                    with contextlib.suppress(BrokenPipeError):  # the cause is asserted below
                        reader.stdin.write("\n")
                        reader.stdin.flush()
            writer.kill()
            writer.stdout.read()
    for reader in readers:
        _, errors = reader.communicate(timeout=60)
        assert (reader.returncode, errors) == (0, "")
