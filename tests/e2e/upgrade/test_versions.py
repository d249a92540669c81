"""Another version replaces the running one, or is refused with the reason."""

import os
import shutil
import signal
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from store.migrations.runner import all_migrations
from supervisor.version import VERSION
from tests.support.daemon import gone, program
from tests.support.installation import Installation
from tests.support.paths import ROOT
from tests.support.waiting import until

NEWER = {"supervisor/version.py": (f'"{VERSION}"', '"99.0"')}
CONTROL, HANDOVER = "supervisor/root/loop/control_thread.py", "supervisor/root/handover/table.py"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(tmp_path)
    yield installation
    installation.clean()


def start(daemon: Installation) -> str:
    """Start the daemon with an active run."""
    side = daemon.directory / "side"
    daemon.write(
        f'[tasks.t]\nrun = {program("numbered", 1_000_000, 0.01, side)}\n[tasks.quick]\nrun = "echo hello; exit 3"\n'
    )
    daemon.start()
    run = daemon.trigger("t")
    until(lambda: daemon.lines(run), "its first line")
    return run


def version(daemon: Installation) -> Any:
    return daemon.get("/api/daemon").json()["version"]


def refusals(daemon: Installation) -> list[str]:
    """Return the parts of the log after each refused upgrade; the first part is the log before."""
    return [part.partition("\n")[0] for part in daemon.output.read_text().split("upgrade refused")]


def assert_unharmed(daemon: Installation, run: str) -> None:
    """Check that the run continues, that new runs work, and that no line was lost."""
    count = len(daemon.lines(run))
    until(lambda: len(daemon.lines(run)) > count, "more lines")
    assert daemon.ended(daemon.trigger("quick"))["exitCode"] == 3
    daemon.request("POST", f"/api/runs/{run}/stop")
    assert daemon.ended(run)["endReason"] == "stopped"
    side = [f"line {number}" for number in (daemon.directory / "side").read_text().split()]
    assert daemon.texts(run) in (side, side[:-1])


def test_upgrade_runs_the_installed_version(daemon: Installation) -> None:
    """``ringward upgrade`` replaces the running version by the installed one, and runs continue.

    A handover in an older format is accepted.
    """
    newer = {
        "HANDOVER = 3": "HANDOVER = 4",
        "[[Table], Table]] = {}": "[[Table], Table]] = {3: lambda table: {**table, 'handover': 4}}",
    }
    daemon.add("second", NEWER)
    for old, new in newer.items():
        file = daemon.directory / "second" / HANDOVER
        assert file.read_text().count(old) == 1
        file.write_text(file.read_text().replace(old, new))
    run = start(daemon)
    assert version(daemon) == VERSION
    same = daemon.cli("upgrade", "--if-different")
    assert (same.returncode, same.stdout) == (0, f"Ringward {VERSION} is already running\n")
    daemon.install("second")
    done = daemon.cli("upgrade", "--if-different")
    assert (done.returncode, done.stdout) == (0, f"Ringward {VERSION} -> 99.0\n"), done.stderr
    assert version(daemon) == "99.0"
    assert_unharmed(daemon, run)


def test_another_state_of_the_same_version(daemon: Installation) -> None:
    """``--if-different`` compares the installed files, and so upgrades to another state of the same version, once."""
    daemon.add("edited", {"supervisor/installation.py": ("_PACKAGES =", "# edited\n_PACKAGES =")})
    run = start(daemon)
    daemon.install("edited")
    done, again = (daemon.cli("upgrade", "--if-different") for _ in range(2))
    assert (done.returncode, done.stdout) == (0, f"Ringward {VERSION} -> {VERSION}\n"), done.stderr
    assert (again.returncode, again.stdout) == (0, f"Ringward {VERSION} is already running\n")
    assert_unharmed(daemon, run)


BROKEN = {
    "syntax": ({CONTROL: ("class ControlThread:", "class ControlThread")}, "control_thread.py"),
    "newer": ({HANDOVER: ("HANDOVER = 3", "HANDOVER = 0")}, f"{VERSION} cannot read the handover of {VERSION}"),
    "scheduler": (
        {"supervisor/scheduler/runs/run_engine.py": ("class RunEngine:", "import nothing\nclass RunEngine:")},
        "nothing",
    ),
    "fields": ({"supervisor/ipc/messages.py": ("    stop_signal: int\n", "")}, "stop_signal"),
}
"""Defects of a version, and the expected message."""


def test_broken_version_is_refused_by_its_trial(daemon: Installation) -> None:
    """A version that fails its trial changes nothing; the log and the command name the cause."""
    run = start(daemon)
    scheduler = daemon.helper("ringward scheduler").pid
    for name, (edits, reason) in BROKEN.items():
        daemon.add(name, edits)
        daemon.install(name)
        refused = daemon.cli("upgrade")
        assert refused.returncode == 1, refused
        assert refused.stderr.startswith(f"ringward: not upgraded, {VERSION} continues: ")
        assert reason in refused.stderr
        until(lambda reason=reason: reason in refusals(daemon)[-1], f"the log to say of {name}: {reason}")  # type: ignore[misc]
    assert daemon.helper("ringward scheduler").pid == scheduler
    daemon.install("first")
    assert_unharmed(daemon, run)


def test_older_version_refuses_a_newer_database(daemon: Installation) -> None:
    """After a migration of the database, the older version is refused with the reason; runs continue."""
    daemon.add("second", NEWER)
    store = daemon.directory / "second" / "store"
    store.unlink()  # it is a link to our sources
    shutil.copytree(ROOT / "store", store)
    (store / "migrations" / f"{all_migrations()[-1].version + 1:04d}_more.py").write_text(
        "READABLE_FROM = 1\n\n\ndef up(db):\n    db.execute('CREATE TABLE more (x INTEGER)')\n"
    )
    run = start(daemon)
    daemon.install("second")
    assert daemon.cli("upgrade").returncode == 0
    daemon.install("first")
    refused = daemon.cli("upgrade")
    assert refused.returncode == 1
    assert "written by a newer release" in refused.stderr
    assert version(daemon) == "99.0"
    assert_unharmed(daemon, run)


def test_newer_scheduler_upgrades_the_supervisor(daemon: Installation) -> None:
    """A scheduler that restarts after an installation makes the supervisor upgrade as well."""
    daemon.add("second", {**NEWER, "supervisor/ipc/messages.py": ("PROTOCOL = 5", "PROTOCOL = 6")})
    run = start(daemon)
    daemon.install("second")
    daemon.helper("ringward scheduler").kill()
    until(lambda: version(daemon) == "99.0" and daemon.ready(), "the newer version")
    assert_unharmed(daemon, run)


def test_newer_scheduler_works_under_an_older_supervisor(daemon: Installation) -> None:
    """A scheduler whose version the supervisor cannot take over works under the older supervisor, and says so."""
    daemon.add("half", {**NEWER, CONTROL: ("class ControlThread:", "class ControlThread")})
    run = start(daemon)
    daemon.install("half")
    daemon.kill_helper("ringward scheduler")
    until(lambda: "of another version than 99.0 and was not upgraded" in daemon.output.read_text(), "the warning")
    assert_unharmed(daemon, run)


def test_daemon_works_while_its_files_are_missing(daemon: Installation) -> None:
    """While all files are missing, as during an installation, the daemon keeps working normally."""
    run = start(daemon)
    helpers = {title: daemon.helper(title).pid for title in ("ringward scheduler", "ringward gunicorn")}
    (daemon.directory / "nothing").mkdir()
    daemon.install("nothing")
    assert "/api/runs" in daemon.get("/openapi.json").json()["paths"]
    assert daemon.get("/schemas/Affected.json").status == HTTPStatus.OK
    assert daemon.get("/api/system").json()["hostname"]
    packed = daemon.request("GET", "/openapi.json", headers={"Accept-Encoding": "zstd"})
    assert (packed.status, packed.headers["Content-Encoding"]) == (HTTPStatus.OK, "zstd")
    for text, reason in (
        ('[tasks.t]\nrun = "true"\nshedule = "@daily"\n', b"did you mean"),
        ('[services.s]\nrun = "x"\nready = { log = "[" }\n', b"is not a valid regular expression"),
    ):
        daemon.write(text)
        refused = daemon.request("POST", "/api/daemon/reload")
        assert refused.status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert reason in refused.body
    assert {title: daemon.helper(title).pid for title in helpers} == helpers
    daemon.install("first")
    assert_unharmed(daemon, run)


def test_refused_exec_changes_nothing(daemon: Installation) -> None:
    """If the kernel refuses the exec at the last moment, everything continues as before."""
    gone = "    os.rename(sys.executable, sys.executable + '.away')\n    return 0\n"
    daemon.add("gone", {"supervisor/root/handover/inherited_state.py": ("    return 0\n", gone)})
    run = start(daemon)
    daemon.install("gone")
    os.kill(daemon.pid, signal.SIGUSR2)
    until(lambda: "cannot be executed: No such file" in daemon.output.read_text(), "the refusal")
    daemon.install("first")
    os.rename(f"{daemon.python}.away", daemon.python)
    until(daemon.ready, "the scheduler")
    assert_unharmed(daemon, run)


def test_version_dies_during_the_takeover(daemon: Installation) -> None:
    """A version that dies during the takeover is a crash like any other: the next start ends and logs its runs."""
    daemon.add("dying", {CONTROL: ("        state = inherited_state.state\n", "        os._exit(1)\n")})
    run = start(daemon)
    (leftover,) = daemon.children("numbered")
    daemon.install("dying")
    assert daemon.cli("upgrade").returncode == 69
    assert daemon.process is not None
    assert daemon.process.wait(60) == 1
    daemon.install("first")
    daemon.start()
    assert daemon.run(run)["endReason"] == "crashed"
    assert gone(leftover)
    texts = daemon.texts(run)
    assert texts == [f"line {number}" for number in range(len(texts))]
    assert texts


def test_run_ending_during_the_exec_is_complete(daemon: Installation) -> None:
    """A run that ends during the exec has its exit status, its time and its last lines."""
    go, seen = daemon.directory / "go", daemon.directory / "seen"
    waiting = f"""
        import time
        open({str(go)!r}, "w").close()
        while not os.path.exists({str(seen)!r}):
            time.sleep(0.01)
"""
    state = "        state = inherited_state.state"
    daemon.add("slow", {CONTROL: (f"{state}\n", f"{state}{waiting}")})
    daemon.write(f"[tasks.t]\nrun = {program('in_parts', go, 'first half, ', 'second half', 42)}\n")
    daemon.start()
    run = daemon.trigger("t")
    (child,) = until(lambda: daemon.children("in_parts"), "it")
    daemon.install("slow")
    os.kill(daemon.pid, signal.SIGUSR2)
    until(lambda: gone(child), "its end")
    seen.touch()
    ended = daemon.ended(run)
    assert (ended["endReason"], ended["exitCode"]) == ("failed", 42)
    assert daemon.texts(run) == ["first half, second half"]
