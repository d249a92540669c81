"""Tasks that run when files change, through the real daemon, with processes that are killed meanwhile."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.daemon import Daemon
from tests.support.host_features import require
from tests.support.waiting import until

pytestmark = pytest.mark.lent

SETTLE = "200ms"


def start(daemon: Daemon, more: str = "", run: str = "tr '\\\\0' '\\\\n' <$RINGWARD_FILES") -> Path:
    """Start a daemon whose task prints the names of changed files; return their directory."""
    place = Path(tempfile.mkdtemp(prefix="in-", dir=daemon.directory))
    daemon.write(f'[tasks.load]\non_change = ["{place}/*.csv"]\nsettle = "{SETTLE}"\nrun = "{run}"\n{more}')
    daemon.start()
    watching(daemon)
    return place


def watching(daemon: Daemon, before: int = 0) -> int:
    """Wait until the file watcher has listed everything; return its pid."""

    def listed() -> int | None:
        children = daemon.children("ringward filewatcher", of="ringward scheduler")
        return children[0].pid if children and children[0].pid != before and _watches(children[0].pid) else None

    return until(listed, "the file watcher")


def _watches(pid: int) -> bool:
    """Return whether the process has an inotify watch."""
    for fd in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            if "inotify wd:" in fd.read_text():
                return True
        except OSError:
            continue
    return False


def drop(place: Path, *names: str, text: str = "x") -> None:
    """Move complete files to their place, one after the other."""
    for name in names:
        hidden = place / f".{name}"
        hidden.write_text(text)
        hidden.rename(place / name)


@contextlib.contextmanager
def one_burst(daemon: Daemon) -> Iterator[None]:
    """Let the file watcher see all changes of the block together, even if they take longer than the time to settle."""
    watcher = psutil.Process(watching(daemon))
    watcher.suspend()
    until(lambda: watcher.status() == psutil.STATUS_STOPPED, "the file watcher to stop")
    yield
    watcher.resume()


def loaded(daemon: Daemon) -> list[list[str]]:
    """Return the names that each ended run was given."""
    return [
        sorted(Path(text).name for text in daemon.texts(run["id"]))
        for run in daemon.runs("load")
        if run["status"] == "ended"
    ]


def each_loaded(daemon: Daemon, expected: set[str]) -> list[list[str]]:
    """Wait until every file was given to a run."""

    def all_loaded() -> list[list[str]] | None:
        bursts = loaded(daemon)
        return bursts if {name for names in bursts for name in names} == expected else None

    return until(all_loaded, f"runs for {expected}")


def test_burst_becomes_one_run(daemon: Daemon) -> None:
    """Files that are written or moved in a burst start one run, which gets their names; other files start none."""
    place = start(daemon)
    with one_burst(daemon):
        drop(place, "a.csv", "b c.csv", "ü.csv", os.fsdecode(b"\xff.csv"))
        (place / "written.csv").write_text("1,2")
        (place / "other.txt").write_text("no")
        (place / ".hidden.csv").write_text("no")
        (place / "directory.csv").mkdir()
    names = ["a.csv", "b c.csv", "written.csv", "ü.csv", "\ufffd.csv"]  # the log shows invalid UTF-8 as U+FFFD
    assert each_loaded(daemon, set(names)) == [names]
    (run,) = daemon.runs("load")
    assert (run["triggeredBy"], run["endReason"]) == ("cron", "succeeded")
    (place / "a.csv").write_text("changed")
    until(lambda: loaded(daemon)[1:] == [["a.csv"]], "a run for the changed file")
    until(lambda: not os.listdir(daemon.data / "changed_files"), "the stored names to be removed")
    until(lambda: not Path(f"{daemon.runtime_dir()}.files").exists(), "the files for the runs to be removed")


def test_manual_run_has_no_files(daemon: Daemon) -> None:
    """A run that a person starts has no variable RINGWARD_FILES."""
    start(daemon, run="echo ${RINGWARD_FILES-none}")
    assert daemon.texts(daemon.ended(daemon.trigger("load"))["id"]) == ["none"]


@pytest.mark.own
def test_files_from_a_downtime(daemon: Daemon) -> None:
    """At the next start, new, changed and replaced files are found, and earlier files are not."""
    place = start(daemon)
    with one_burst(daemon):
        drop(place, "kept.csv", "changed.csv", "replaced.csv")
    each_loaded(daemon, {"kept.csv", "changed.csv", "replaced.csv"})
    daemon.stop()
    (place / "changed.csv").write_text("more")
    before = (place / "replaced.csv").stat()
    drop(place, "replaced.csv", "new.csv")
    os.utime(place / "replaced.csv", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.chmod(place, 0o755)
    daemon.start()
    until(lambda: loaded(daemon)[1:] == [["changed.csv", "new.csv", "replaced.csv"]], "a run for what came")
    daemon.stop()
    daemon.start()
    watching(daemon)
    drop(place, "last.csv")
    until(lambda: loaded(daemon)[2:] == [["last.csv"]], "a run for the last file")


def test_existing_files_start_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """Files that exist at the first start, or in a directory that a reload adds, start nothing."""
    place, more = tmp_path / "in", tmp_path / "more"
    for directory in (place, more):
        directory.mkdir()
        drop(directory, "old.csv")
    daemon.write("")
    daemon.start()
    text = daemon.config.read_text()
    task = f'on_change = "{place}/*.csv"\nsettle = "{SETTLE}"\nrun = "cat $RINGWARD_FILES"\n'
    daemon.config.write_text(f"{text}[tasks.load]\n{task}")
    assert daemon.cli("reload").returncode == 0
    watching(daemon)
    daemon.config.write_text(
        f"{text}[tasks.load]\n{task.replace('on_change = ', 'on_change = [').replace('*.csv', '*.csv', 1)}".replace(
            '*.csv"\n', f'*.csv", "{more}/*"]\n'
        )
    )
    before = watching(daemon)
    done = daemon.cli("reload")
    assert done.returncode == 0, done.stderr
    watching(daemon, before)
    drop(place, "new.csv")
    until(lambda: len(daemon.runs("load")) == 1, "a run")
    daemon.ended(daemon.runs("load")[0]["id"])
    (names,) = daemon.texts(daemon.runs("load")[0]["id"])
    assert names.split("\0")[:-1] == [str(place / "new.csv")]


@pytest.mark.parametrize("victim", ["ringward filewatcher", "ringward scheduler", "root"])
def test_kills_lose_no_file(daemon: Daemon, victim: str) -> None:
    """Each of many files is given to a run, whichever process is killed; runs of a killed root are retried."""
    place = start(daemon, more="retry_attempts = 5\nretry_delay = '0s'\n")
    names = [f"{number:03}.csv" for number in range(60)]
    for number, name in enumerate(names):
        drop(place, name)
        if number % 20 == 10:
            until(lambda: daemon.runs("load"), "the first run")
            kill(daemon, victim)
    bursts = each_loaded(daemon, set(names))
    given = [name for burst in bursts for name in burst]
    if victim != "root":
        assert len(given) == len(set(given))


def kill(daemon: Daemon, victim: str) -> None:
    if victim == "root":
        daemon.stop(signal.SIGKILL)
        daemon.start()
    elif victim == "ringward scheduler":
        daemon.kill_helper(victim)
    else:
        pid = watching(daemon)
        os.kill(pid, 9)
        watching(daemon, pid)


def test_busy_task_loses_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """During a run, bursts wait: one run follows for the first burst, and one for all later bursts."""
    gate = tmp_path / "gate"
    place = start(
        daemon,
        more="on_overlap = 'skip'\n",
        run=f"tr '\\\\0' '\\\\n' <$RINGWARD_FILES; until test -e {gate}; do sleep 0.05; done",
    )
    drop(place, "first.csv")
    until(lambda: any(run["status"] == "running" for run in daemon.runs("load")), "the first run")
    drop(place, "second.csv")
    daemon.kill_helper("ringward scheduler")
    drop(place, "third.csv")
    watching(daemon)
    gate.touch()
    bursts = each_loaded(daemon, {"first.csv", "second.csv", "third.csv"})
    assert bursts[0] == ["first.csv"]
    assert len(daemon.runs("load")) <= 3
    assert {run["endReason"] for run in daemon.runs("load")} == {"succeeded"}


def test_one_run_waits_in_the_queue(daemon: Daemon, tmp_path: Path) -> None:
    """With the queue, one run with files waits, and later files form another burst."""
    gate = tmp_path / "gate"
    place = start(daemon, run=f"tr '\\\\0' '\\\\n' <$RINGWARD_FILES; until test -e {gate}; do sleep 0.05; done")
    drop(place, "first.csv")
    until(lambda: any(run["status"] == "running" for run in daemon.runs("load")), "the first run")
    drop(place, "second.csv")
    until(lambda: any(run["status"] == "pending" for run in daemon.runs("load")), "the second run")
    drop(place, "third.csv")
    until(lambda: "third.csv" in (daemon.data / "on_change/load.json").read_text(), "the third burst")
    assert len(daemon.runs("load")) == 2
    with one_burst(daemon):
        drop(place, "fourth.csv", "fifth.csv")
    gate.touch()
    expected = [["first.csv"], ["second.csv"], ["third.csv"], ["fifth.csv", "fourth.csv"]]
    until(lambda: loaded(daemon) == expected, "all runs")


def test_occupied_slot(daemon: Daemon, tmp_path: Path) -> None:
    """While another task holds the slot, one run with files waits, and no file of a later burst is lost."""
    gate = tmp_path / "gate"
    place = start(
        daemon,
        more="queue_max = 0\nuses = ['disk']\n[slots.disk]\nsize = 1\n"
        f"[tasks.backup]\nuses = ['disk']\nrun = 'until test -e {gate}; do sleep 0.05; done'\n",
    )
    daemon.trigger("backup")
    drop(place, "first.csv")
    until(lambda: daemon.runs("load"), "the first run")
    drop(place, "second.csv")
    until(lambda: "second.csv" in (daemon.data / "on_change/load.json").read_text(), "the second burst")
    drop(place, "third.csv")
    gate.touch()
    each_loaded(daemon, {"first.csv", "second.csv", "third.csv"})
    assert {run["endReason"] for run in daemon.runs("load")} == {"succeeded"}


def test_inotify_overflow(daemon: Daemon) -> None:
    """Changes beyond the kernel's event queue are found by listing the directory, and the log says so."""
    place = start(daemon)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"the kernel keeps {limit} events")
    names = {f"{number}.csv" for number in range(limit + 10)}
    with one_burst(daemon):
        for name in names:
            (place / name).touch()
    bursts = each_loaded(daemon, names)
    assert sum(map(len, bursts)) == len(names)
    assert "load: inotify events were lost; listing all directories" in daemon.own_output()


def test_paused_task(daemon: Daemon) -> None:
    """Files that arrive while a task is paused start a run when it is resumed."""
    place = start(daemon)
    assert daemon.cli("pause", "load").returncode == 0
    drop(place, "a.csv")
    until(lambda: '"pending":{' in (daemon.data / "on_change/load.json").read_text(), "the burst")
    assert daemon.runs("load") == []
    assert daemon.cli("resume", "load").returncode == 0
    assert each_loaded(daemon, {"a.csv"}) == [["a.csv"]]


def test_missing_and_recreated_directory(daemon: Daemon) -> None:
    """A directory that is missing or removed is watched as soon as it exists, and the log says so."""
    place = daemon.directory / "later" / "in"
    daemon.write(
        f'[tasks.load]\non_change = ["{place}/*.csv"]\nsettle = "{SETTLE}"\n'
        "run = \"tr '\\\\0' '\\\\n' <$RINGWARD_FILES\"\n"
    )
    daemon.start()
    until(lambda: f"{place} does not exist; it is watched as soon as it does" in daemon.own_output(), "the warning")
    place.mkdir(parents=True)
    drop(place, "a.csv")
    each_loaded(daemon, {"a.csv"})
    until(lambda: f"{place} is watched" in daemon.own_output(), "the message")
    shutil.rmtree(place)
    place.mkdir()
    drop(place, "b.csv")
    each_loaded(daemon, {"a.csv", "b.csv"})
    place.rename(place.with_name("away"))
    place.mkdir()
    drop(place, "c.csv")
    each_loaded(daemon, {"a.csv", "b.csv", "c.csv"})


def test_retry_gets_the_same_files(daemon: Daemon) -> None:
    """A retry gets the names of its first attempt."""
    place = start(
        daemon,
        more="retry_attempts = 1\nretry_delay = '0s'\n",
        run="tr '\\\\0' '\\\\n' <$RINGWARD_FILES; exit $((1 - RINGWARD_ATTEMPT))",
    )
    drop(place, "a.csv")
    until(lambda: loaded(daemon) == [["a.csv"], ["a.csv"]], "both attempts")
    assert [run["endReason"] for run in daemon.runs("load")] == ["failed", "succeeded"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a task as another user")
def test_names_are_private_to_the_user(daemon: Daemon) -> None:
    """The names are in a file that only the run's user can read."""
    place = start(
        daemon,
        more="user = 'nobody'\nworking_dir = '/'\n",
        run="tr '\\\\0' '\\\\n' <$RINGWARD_FILES; stat -c '%U %a' $RINGWARD_FILES",
    )
    drop(place, "a.csv")
    until(lambda: loaded(daemon), "the run")
    (run,) = daemon.runs("load")
    assert daemon.texts(run["id"]) == [str(place / "a.csv"), "nobody 600"]
    assert stat.S_IMODE(daemon.data.stat().st_mode) & 0o007 == 0


class WithoutWatches(Daemon):
    """A daemon whose user may not watch any directory with inotify, because of a limit of its user namespace."""

    enter = ("unshare", "--user", "--map-root-user")
    limit = "echo 0 >/proc/sys/user/max_inotify_watches"

    def command(self) -> list[str]:
        return [*self.enter, "sh", "-c", f'{self.limit} && exec "$@"', "sh", *super().command()]

    def raise_limit(self) -> None:
        enter = ["nsenter", "--user", "--preserve-credentials", f"--target={self.pid}"]
        subprocess.run([*enter, "sh", "-c", self.limit.replace("0", "1000", 1)], check=True)


@pytest.mark.own
def test_inotify_limit(tmp_path: Path) -> None:
    """The log names the limit once, status shows it until it is raised, and no file is missed meanwhile."""
    require("unshare", "nsenter")
    if subprocess.run([*WithoutWatches.enter, "sh", "-c", WithoutWatches.limit], capture_output=True).returncode != 0:
        pytest.skip("user namespaces cannot be made here")
    if os.geteuid() != 0:
        pytest.skip("in a user namespace, only root owns the directories of shared memory")
    place = tmp_path / "in"
    place.mkdir()
    run = "tr '\\\\0' '\\\\n' <$RINGWARD_FILES"
    task = f'on_change = ["{place}/*.csv"]\nsettle = "{SETTLE}"\nrun = "{run}"\n'
    daemon = WithoutWatches(tmp_path)
    daemon.write(f"[tasks.load]\n{task}[tasks.more]\n{task}")
    problem = (
        "all inotify watches of the user are in use, so on_change lists directories every 10 s;"
        " raise fs.inotify.max_user_watches"
    )
    try:
        daemon.start()
        until(lambda: daemon.get("/api/daemon").json()["inotifyProblems"] == [problem], "the problem")
        shown = daemon.cli("status")
        assert shown.returncode == 1
        assert "raise fs.inotify.max_user_watches" in " ".join(shown.stdout.split())
        until((daemon.data / "on_change/load.json").exists, "the first list")
        drop(place, "listed.csv")
        each_loaded(daemon, {"listed.csv"})
        daemon.raise_limit()
        until(lambda: daemon.get("/api/daemon").json()["inotifyProblems"] == [], "the end of the problem")
        until(lambda: "inotify watches all directories of on_change again" in daemon.own_output(), "the message")
        assert daemon.own_output().count(problem) == 1
        assert daemon.cli("status").returncode == 0
    finally:
        daemon.clean()
