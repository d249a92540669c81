"""A database that is damaged, removed, or locked by another program."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import sqlite3
from pathlib import Path

from store.recovery.copies import make_copy
from tests.support.daemon import Daemon, gone
from tests.support.waiting import until

TASK = '[tasks.t]\nrun = "echo hello"\n'


def damage(path: Path, start: int, end: int | None = None) -> bytes:
    """Overwrite all bytes from `start` on, or up to `end`; return the new contents."""
    with contextlib.closing(sqlite3.connect(path)) as last:
        last.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # otherwise the -wal would repair the damage
    end = path.stat().st_size if end is None else end
    with path.open("r+b") as file:  # in place: a daemon that looks meanwhile would consider an empty file intact
        file.seek(start)
        file.write(b"\xa5" * (end - start))
    return path.read_bytes()


def copy(daemon: Daemon) -> None:
    """Create the copy now, at a time when the janitor creates none."""
    with (daemon.data / "janitor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_copy(str(daemon.data / "ringward.db"))


def test_start_from_the_copy(daemon: Daemon) -> None:
    """With a damaged header, damaged pages or no file, the daemon starts from the copy and keeps the old file."""
    daemon.write(TASK)
    daemon.start()
    path = daemon.data / "ringward.db"
    damaged_files: dict[str, bytes] = {}
    for start in (0, 4096, None):
        daemon.ended(daemon.trigger("t"))
        before = [run["id"] for run in daemon.runs("t")]
        copy(daemon)
        after = daemon.ended(daemon.trigger("t"))
        assert daemon.stop() == 0
        damaged = []
        if start is None:
            for part in ("", "-wal", "-shm"):
                Path(f"{path}{part}").unlink(missing_ok=True)
        else:
            damaged = [damage(path, start)]
        size_before = daemon.output.stat().st_size
        daemon.start()
        assert [run["id"] for run in daemon.runs("t")] == before
        assert daemon.get(f"/api/runs/{after['id']}").status == 404
        notices = [
            item for item in daemon.get("/api/notifications").json()["items"] if item["kind"] == "database.restored"
        ]
        assert "later data is lost" in notices[0]["body"]
        again = "the database is restored from its copy of"
        until(lambda: again in daemon.output.read_text()[size_before:], "a word about it")  # noqa: B023
        new = {
            str(path): path.read_bytes()
            for path in daemon.data.glob("ringward.db.damaged-*")
            if str(path) not in damaged_files
        }
        assert [*new.values()] == damaged
        assert all(name in notices[0]["body"] for name in new)
        damaged_files |= new
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"
    assert daemon.stop() == 0
    daemon.start()
    assert len(daemon.runs("t")) == 4


def root_page(path: Path, table: str) -> tuple[int, int]:
    """Return the start and end of the first page of a table, in bytes."""
    with contextlib.closing(sqlite3.connect(path)) as last:
        size = last.execute("PRAGMA page_size").fetchone()[0]
        page = last.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchone()[0]
    return (page - 1) * size, page * size


def test_damage_found_late_in_a_start(daemon: Daemon) -> None:
    """Damage outside the rows that are read first is repaired too, at the start of a daemon or a scheduler."""
    daemon.write(TASK)
    daemon.start()
    path = daemon.data / "ringward.db"
    before = daemon.ended(daemon.trigger("t"))["id"]
    copy(daemon)
    assert daemon.stop() == 0
    damage(path, *root_page(path, "meta"))
    daemon.start()
    until(lambda: [run["id"] for run in daemon.runs("t")] == [before], "the runs of the copy")
    copy(daemon)
    scheduler = daemon.helper("ringward scheduler").pid
    damage(path, *root_page(path, "meta"))
    os.kill(scheduler, signal.SIGKILL)
    daemon.replaced("ringward scheduler", scheduler)
    until(lambda: len(list(daemon.data.glob("ringward.db.damaged-*"))) >= 2, "the second repair")
    until(daemon.ready, "a scheduler")
    assert daemon.run(before)["endReason"] == "succeeded"


def test_killed_scheduler_with_a_damaged_wal(daemon: Daemon) -> None:
    """A scheduler with an overwritten WAL restarts from the copy; a service continues and is not started twice."""
    daemon.write(f'{TASK}[services.s]\nrun = "exec sleep 1000"\n')
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "running", "the service")
    before = daemon.ended(daemon.trigger("t"))["id"]
    service = daemon.runs("s")[0]["id"]
    copy(daemon)
    scheduler = daemon.helper("ringward scheduler").pid
    wal = daemon.data / "ringward.db-wal"
    with wal.open("r+b") as file:
        file.write(b"\xa5" * min(200_000, wal.stat().st_size))
    os.kill(scheduler, signal.SIGKILL)
    until(lambda: "database.restored" in daemon.get("/api/notifications").body.decode(), "the repair")
    until(daemon.ready, "a scheduler")
    assert daemon.run(before)["endReason"] == "succeeded"
    assert [(run["id"], run["status"]) for run in daemon.runs("s")] == [(service, "running")]


def test_disappeared_database_is_restored(daemon: Daemon) -> None:
    """The next reader notices that the database is gone; the copy is restored, and later rows are kept."""
    daemon.write(TASK)
    daemon.start()
    path = daemon.data / "ringward.db"
    before = daemon.ended(daemon.trigger("t"))["id"]
    copy(daemon)
    scheduler = daemon.helper("ringward scheduler").pid
    for part in ("", "-wal", "-shm"):
        Path(f"{path}{part}").unlink()
    until(lambda: "database.restored" in daemon.get("/api/notifications").body.decode(), "the database of before")
    daemon.replaced("ringward scheduler", scheduler)
    after = daemon.ended(daemon.trigger("t"))["id"]
    assert [run["id"] for run in daemon.runs("t")] == [before, after]
    assert daemon.stop() == 0


QUEUED = f"""{TASK}[tasks.q]
run = '''echo first; until [ -e "$GATE" ]; do sleep 0.01; done'''
env = {{GATE = "gate"}}
[tasks.c]
run = "echo $RINGWARD_SCHEDULED_AT >> $INSTANTS"
env = {{INSTANTS = "instants"}}
every = "1s"
"""


def test_runs_newer_than_the_copy_are_salvaged(daemon: Daemon) -> None:
    """If rows of runs are intact, no end is lost, pending runs start, and runs that ended unseen have crashed.

    No instant runs twice or is forgotten.
    """
    instants = daemon.directory / "instants"
    daemon.write(QUEUED.replace('"gate', f'"{daemon.directory}/gate').replace('"instants', f'"{instants}'))
    daemon.start()
    path = daemon.data / "ringward.db"
    copy(daemon)
    after, runs, waits = daemon.ended(daemon.trigger("t")), daemon.trigger("q"), daemon.trigger("q")
    until(lambda: daemon.texts(runs) == ["first"] and instants.exists(), "it to run, and an instant to come")
    assert daemon.run(waits)["status"] == "pending"
    helpers = [daemon.helper(f"ringward {name}") for name in ("scheduler", "gunicorn")]
    daemon.stop(signal.SIGKILL)
    until(lambda: all(map(gone, helpers)), "all users of the database to end as well")
    damage(path, 0, 4096)
    before = instants.read_text().split()
    (daemon.directory / "gate").touch()
    daemon.start()
    assert daemon.run(after["id"]) == after
    assert daemon.ended(runs)["endReason"] == "crashed"
    assert daemon.ended(waits)["endReason"] == "succeeded"
    until(lambda: len(instants.read_text().split()) > len(before), "the next instant")
    run = instants.read_text().split()
    assert sorted({*run}) == run
    assert len(daemon.runs("c")) >= len(run)
    # A run of c may have been active while the copy was made; then the log counts its end as a change.
    recovered_text = re.compile(r"saved \d+ later runs? and \d+ changes? of earlier ones; the damaged one is")
    until(lambda: recovered_text.search(daemon.output.read_text()), "a message about the saved runs")


WORK = f"""{TASK}[tasks.long]
run = '''echo first; until [ -e "$GATE" ]; do sleep 0.01; done; echo last'''
env = {{GATE = "gate"}}
max_concurrent = 3
[services.s]
run = "exec sleep 1000"
"""


def test_damage_at_run_time_is_repaired(daemon: Daemon) -> None:
    """Whichever process meets the damage, the next scheduler starts from the copy.

    Runs continue, and no end is lost.
    """
    daemon.write(WORK.replace("gate", str(daemon.directory / "gate")))
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "running", "the service")
    before = daemon.ended(daemon.trigger("t"))
    path = daemon.data / "ringward.db"
    copy(daemon)
    daemon.ended(daemon.trigger("t"))
    ends, stays = daemon.trigger("long"), daemon.trigger("long")
    until(lambda: daemon.texts(ends) == daemon.texts(stays) == ["first"], "both to run")
    assert daemon.request("POST", "/api/tasks/s/restart").status == 204
    until(lambda: len(daemon.runs("s")) == 2 and daemon.task("s")["state"] == "running", "the service again")
    service = daemon.runs("s")[1]
    scheduler, gunicorn = daemon.helper("ringward scheduler").pid, daemon.helper("ringward gunicorn").pid
    damage(path, 4096)
    notice = "checking the whole database"
    until(lambda: daemon.get("/api/runs?limit=7") and notice in daemon.output.read_text(), "the damage to be found")
    (daemon.directory / "gate").touch()
    until(lambda: list(daemon.data.glob("ringward.db.damaged-*")), "the repair")
    until(lambda: daemon.helper("ringward scheduler").pid != scheduler and daemon.ready(), "the next scheduler")
    # The API server caches the previous scheduler's answer for a moment.
    until(lambda: all(daemon.get(f"/api/runs/{run}").status == 200 for run in (ends, stays)), "it to take them up")
    for run in (ends, stays):
        ended = daemon.ended(run)
        assert (ended["endReason"], ended["exitCode"], ended["triggeredBy"]) == ("succeeded", 0, "api")
        assert daemon.texts(run) == ["first", "last"]
    assert [(run["id"] == service["id"], run["status"]) for run in daemon.runs("s")] == [
        (False, "ended"),
        (True, "running"),
    ]
    assert daemon.task("s")["state"] == "running"
    assert [run["id"] for run in daemon.runs("t")] == [before["id"]]
    assert daemon.helper("ringward gunicorn").pid == gunicorn
    kinds = [item["kind"] for item in daemon.get("/api/notifications").json()["items"]]
    assert kinds.count("database.restored") == 1
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"
    assert daemon.stop() == 0
    daemon.start()
    assert {daemon.run(run)["endReason"] for run in (ends, stays)} == {"succeeded"}
    assert "Traceback" not in daemon.output.read_text()


def remove(path: Path) -> None:
    for part in ("", "-wal", "-shm"):
        Path(f"{path}{part}").unlink(missing_ok=True)


def test_removed_database_is_restored_without_a_write(daemon: Daemon) -> None:
    """A removed database is completely restored, even if nothing is written; a notification reports it."""
    daemon.write(TASK)
    daemon.start()
    path = daemon.data / "ringward.db"
    scheduler = daemon.helper("ringward scheduler").pid
    runs = [daemon.ended(daemon.trigger("t"))["id"]]
    path.unlink()
    until(lambda: "nothing is lost" in daemon.get("/api/notifications").body.decode(), "the database")
    remove(path)
    runs.append(daemon.trigger("t"))
    daemon.ended(runs[-1])
    notices = [item for item in daemon.get("/api/notifications").json()["items"] if item["kind"] == "database.restored"]
    assert [event["count"] for event in notices] == [2]
    assert "nothing is lost" in notices[0]["body"]
    Path(f"{path}-wal").unlink()
    runs.append(daemon.ended(daemon.trigger("t"))["id"])
    assert [run["id"] for run in daemon.runs("t")] == runs
    assert daemon.helper("ringward scheduler").pid == scheduler
    assert daemon.stop() == 0
    daemon.start()
    assert [run["id"] for run in daemon.runs("t")] == runs
    assert "Traceback" not in daemon.output.read_text()


def test_replaced_database_is_left_alone(daemon: Daemon) -> None:
    """A foreign file is neither changed nor used, even by the next scheduler, until a person acts."""
    daemon.write(f'{TASK}[services.s]\nrun = "exec sleep 1000"\n')
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "running", "the service")
    path = daemon.data / "ringward.db"
    before = daemon.ended(daemon.trigger("t"))["id"]
    copy(daemon)
    backup = Path(f"{path}.copy").read_bytes()
    daemon.ended(daemon.trigger("t"))
    service = daemon.helper("sleep 1000").pid
    other = daemon.directory / "backup"
    other.write_bytes(backup)
    remove(path)
    other.rename(path)
    until(lambda: daemon.get("/readyz").status == 503, "it to be noticed")
    assert daemon.request("POST", "/api/tasks/t/run").status == 503
    until(lambda: "took the place" in daemon.get("/readyz").body.decode(), "readyz to say so")
    assert "move that file away" in daemon.get("/api/daemon").json()["databaseProblem"]
    status = daemon.cli("status")
    assert status.returncode == 1
    assert "move that file away" in " ".join(status.stdout.split())
    scheduler = daemon.helper("ringward scheduler").pid
    os.kill(scheduler, signal.SIGKILL)
    until(lambda: "waiting for the database" in daemon.output.read_text(), "the next scheduler to wait")
    assert path.read_bytes() == backup
    assert daemon.helper("sleep 1000").pid == service
    path.unlink()
    until(daemon.ready, "a scheduler")
    assert daemon.run(before)["endReason"] == "succeeded"
    assert "databaseProblem" not in daemon.get("/api/daemon").json()
    assert daemon.helper("sleep 1000").pid == service


def test_missing_database_and_copy(daemon: Daemon) -> None:
    """A scheduler that finds neither waits for a person and stops nothing; active runs are in the new history."""
    daemon.write(WORK.replace("gate", str(daemon.directory / "gate")))
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "running", "the service")
    path = daemon.data / "ringward.db"
    old = daemon.ended(daemon.trigger("t"))["id"]
    run = daemon.trigger("long")
    until(lambda: daemon.texts(run) == ["first"], "the run")
    service = daemon.runs("s")[0]["id"]
    assert daemon.cli("recover", "--new-history").returncode == 1
    scheduler = daemon.helper("ringward scheduler").pid
    os.kill(scheduler, signal.SIGSTOP)
    remove(path)
    Path(f"{path}.copy").unlink(missing_ok=True)
    os.kill(scheduler, signal.SIGKILL)
    until(lambda: "ringward recover --new-history" in daemon.output.read_text(), "a word about it")
    until(lambda: "history is lost" in daemon.get("/readyz").body.decode(), "readyz to say so")
    status = daemon.cli("status")
    assert status.returncode == 1
    assert "recover --new-history" in " ".join(status.stdout.split())
    (daemon.directory / "gate").touch()
    assert not path.exists()
    recovered = daemon.cli("recover", "--new-history")
    assert recovered.returncode == 0, recovered.stderr
    until(daemon.ready, "a scheduler")
    assert daemon.ended(run)["endReason"] == "succeeded"
    assert [(run["id"], run["status"]) for run in daemon.runs("s")] == [(service, "running")]
    assert daemon.get(f"/api/runs/{old}").status == 404
    kinds = [item["kind"] for item in daemon.get("/api/notifications").json()["items"]]
    assert kinds.count("database.restored") == 1
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"
    assert not (daemon.data / "new-history").exists()


def test_shutdown_without_a_history(daemon: Daemon) -> None:
    """A daemon that ends while its history is lost leaves no database file in its runtime directory."""
    daemon.write(TASK)
    daemon.start()
    scheduler = daemon.helper("ringward scheduler").pid
    os.kill(scheduler, signal.SIGSTOP)
    remove(daemon.data / "ringward.db")
    Path(f"{daemon.data}/ringward.db.copy").unlink(missing_ok=True)
    os.kill(scheduler, signal.SIGKILL)
    until(lambda: "history is lost" in daemon.get("/readyz").body.decode(), "it to be noticed")
    places = daemon.runtime_dirs()

    def databases() -> list[str]:
        return [path.name for place in places for path in place.rglob("database*")]

    assert databases() != []
    daemon.stop()
    assert databases() == []


def test_backup_restored_under_a_running_daemon(daemon: Daemon) -> None:
    """A backup that replaces a lost history is used at once, and runs continue."""
    daemon.write(f'{TASK}[services.s]\nrun = "exec sleep 1000"\n')
    daemon.start()
    path = daemon.data / "ringward.db"
    old = daemon.ended(daemon.trigger("t"))["id"]
    copy(daemon)
    backup = Path(f"{path}.copy").rename(daemon.directory / "backup")
    assert daemon.request("POST", "/api/tasks/s/restart").status == 204
    until(lambda: len(daemon.runs("s")) == 2 and daemon.task("s")["state"] == "running", "the service again")
    service = daemon.runs("s")[1]["id"]
    scheduler = daemon.helper("ringward scheduler").pid
    os.kill(scheduler, signal.SIGSTOP)
    remove(path)
    Path(f"{path}.copy").unlink(missing_ok=True)
    os.kill(scheduler, signal.SIGKILL)
    until(lambda: "history is lost" in daemon.get("/readyz").body.decode(), "it to be noticed")
    backup.rename(path)
    until(daemon.ready, "a scheduler")
    assert daemon.run(old)["endReason"] == "succeeded"
    assert [run["id"] for run in daemon.runs("s") if run["status"] == "running"] == [service]


def test_start_without_a_history(daemon: Daemon) -> None:
    """A daemon whose database and copy are gone does not start, unless a person requests a new history."""
    daemon.write(TASK)
    daemon.start()
    until((daemon.data / "reserve").exists, "the reserve")
    assert daemon.stop() == 0
    path = daemon.data / "ringward.db"
    remove(path)
    Path(f"{path}.copy").unlink(missing_ok=True)
    refused = daemon.cli("up")
    assert refused.returncode == 73
    assert "ringward up --new-history" in refused.stdout + refused.stderr
    assert not path.exists()
    daemon.options = ["--new-history"]
    daemon.start()
    assert daemon.runs("t") == []
    assert daemon.stop() == 0
    daemon.options = []
    daemon.start()


def test_logs_removed_during_a_run(daemon: Daemon) -> None:
    """If ``logs/`` is removed while a run prints, its log still has every line, and the daemon reports it."""
    daemon.write(
        f"""[tasks.t]
run = '''seq 100000; until [ -e "$GATE" ]; do sleep 0.01; done; seq 100001 200000'''
env = {{GATE = "{daemon.directory / "gate"}"}}
"""
    )
    daemon.start()
    run = daemon.trigger("t")
    until(lambda: len(list(daemon.data.glob(f"logs/*/*/{run}.log"))) == 1, "the log file")
    until(lambda: daemon.get(f"/api/runs/{run}/log?from=99999&limit=1").json()["lines"], "the first half")
    shutil.rmtree(daemon.data / "logs")
    (daemon.directory / "gate").touch()
    daemon.ended(run)
    daemon.log_file(run)
    assert daemon.texts(run) == [str(number) for number in range(1, 200_001)]
    until(lambda: "its log file was removed while it was in use" in daemon.output.read_text(), "a word about it")
