"""A backup of the data directory of a running daemon, and its restoration."""

import json
import os
import shutil
from pathlib import Path

import pytest

from store.database import open_reader
from supervisor.tools.backup import back_up
from tests.support.daemon import Daemon
from tests.support.waiting import until

CONFIG = """
[tasks.counts]
run = "seq 1 20000"

[tasks.waits]
run = "echo begun; exec sleep 3600"

[services.talks]
run = "while :; do echo word; sleep 0.05; done"
"""


def test_restored_backup_of_a_running_daemon(daemon: Daemon, tmp_path: Path) -> None:
    """A backup that was made during active runs restores history and logs as they were."""
    daemon.write(CONFIG)
    daemon.start()
    done = daemon.trigger("counts")
    daemon.ended(done)
    waiting = daemon.trigger("waits")
    until(lambda: daemon.run(waiting)["status"] == "running", "the run to start")
    daemon.log_file(done)
    lines = daemon.lines(done)

    copy = tmp_path / "copy"
    made = daemon.cli("backup", "--json", str(copy))
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    assert document["runs"] == 3
    assert document["damaged"] == []
    assert copy.stat().st_mode & 0o777 == 0o700

    later = daemon.trigger("counts")
    daemon.ended(later)
    daemon.stop()
    daemon.data.rename(tmp_path / "old")
    shutil.copytree(copy, daemon.data)
    daemon.start()
    assert daemon.lines(done) == lines
    assert daemon.ended(waiting)["endReason"] == "crashed"
    assert later not in [run["id"] for run in daemon.runs("counts")]
    until(lambda: daemon.task("talks")["state"] == "running", "the service to start anew")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can copy another user's files")
def test_backup_belongs_to_the_daemon_user(daemon: Daemon, tmp_path: Path) -> None:
    """A backup that root makes belongs to the user of the daemon, which starts with it."""
    daemon.write(CONFIG)
    daemon.start()
    daemon.ended(daemon.trigger("counts"))
    daemon.stop()
    for path in (daemon.data, *daemon.data.rglob("*")):
        os.chown(path, 12345, 23456)
    copied = back_up(str(daemon.data), str(tmp_path / "copy"))
    assert copied.logs >= 1
    owners = {path.lstat()[4:6] for path in (tmp_path / "copy", *(tmp_path / "copy").rglob("*"))}
    assert owners == {(12345, 23456)}


@pytest.mark.lent
def test_backup_overwrites_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """A backup overwrites neither a directory nor a file, and a failed one leaves nothing."""
    daemon.write(CONFIG)
    daemon.start()
    refused = daemon.cli("backup", str(tmp_path))
    assert refused.returncode == 1
    assert "already exists" in refused.stderr
    nowhere = daemon.cli("backup", str(tmp_path / "no" / "place"))
    assert nowhere.returncode == 1
    assert list(tmp_path.glob("*.unfinished")) == []


@pytest.mark.lent
def test_backup_inside_the_data(daemon: Daemon, tmp_path: Path) -> None:
    """A backup inside the data directory, also through a symbolic link, is refused and leaves nothing."""
    daemon.write(CONFIG)
    daemon.start()
    done = daemon.trigger("counts")
    daemon.ended(done)
    daemon.log_file(done)
    (tmp_path / "link").symlink_to(daemon.data / "logs")
    for parent in (daemon.data, daemon.data / "logs", tmp_path / "link"):
        refused = daemon.cli("backup", str(parent / "copy"))
        assert refused.returncode == 64
        assert f"{parent}/copy is inside {daemon.data}, which the backup copies" in refused.stderr
    assert list(daemon.data.rglob("copy*")) == []


@pytest.mark.lent
def test_backup_holds_no_lock_socket_or_secret(daemon: Daemon, tmp_path: Path) -> None:
    """The database of a backup is a single self-contained file; locks, sockets and secrets are left out."""
    daemon.write(CONFIG)
    daemon.start()
    run = daemon.trigger("counts")
    daemon.ended(run)
    daemon.log_file(run)
    copied = back_up(str(daemon.data), str(tmp_path / "copy"))
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"ringward.db", "logs", "id"}
    assert copied.logs >= 1
    reader = open_reader(str(tmp_path / "copy" / "ringward.db"), limit_s=None)
    try:
        assert reader.rows("SELECT count(*) FROM runs")[0][0] == copied.runs
    finally:
        reader.close()


def test_damaged_log_is_copied_and_named(daemon: Daemon, tmp_path: Path) -> None:
    """A damaged log is copied unchanged and named in the output."""
    daemon.write(CONFIG)
    daemon.start()
    run = daemon.trigger("counts")
    daemon.ended(run)
    log = daemon.log_file(run)
    log.chmod(0o600)
    log.write_bytes(b"no log" * 1000)
    made = daemon.cli("backup", str(tmp_path / "copy"))
    assert made.returncode == 1
    assert run in made.stderr
