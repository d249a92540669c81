"""Upgrades between archived versions and the working tree, with runs in every possible state."""

import contextlib
import re
import threading
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil
import pytest

from supervisor.version import VERSION
from tests.e2e.services.test_readiness import SAY, is_ready, on_flag, watcher
from tests.e2e.upgrade.test_upgrade import HALVES, has_begun, lines_written, raw, shown
from tests.support.daemon import program, shell_program
from tests.support.installation import Installation
from tests.support.waiting import until

VERSIONS = Path(__file__).with_name("versions")
RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in VERSIONS.glob("*.tar.xz"))
SIGKILLED = 137
both_ways = pytest.mark.parametrize(
    ("old", "new"), [*((name, "first") for name in RELEASES), *(("first", name) for name in RELEASES)]
)
"""From each release to the working tree, and back."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Installation]:
    """A daemon that can have each of these versions; "first" is the working tree."""
    installation = Installation(tmp_path)
    for name in RELEASES:
        installation.unpack(VERSIONS / f"{name}.tar.xz")
    yield installation
    installation.clean()


def upgrade(daemon: Installation, new: str) -> None:
    """Upgrade to another version, which may be older, and check that it runs."""
    before = daemon.pid
    daemon.install(new)
    done = daemon.cli("upgrade")
    assert done.returncode == 0, done
    assert daemon.pid == before
    until(daemon.ready, "the daemon of the other version")


@both_ways
def test_runs_in_every_state(daemon: Installation, tmp_path: Path, old: str, new: str) -> None:
    """Runs print, end, stop, time out and leave the queue under the other version; no line is lost."""
    daemon.install(old)
    go, side = tmp_path / "go", tmp_path / "side"
    deaf, ready = program("ignores_term"), on_flag(go, SAY.format(b"READY=1"))
    (tmp_path / "secret").write_text("correct-horse-battery")
    (tmp_path / "secret").chmod(0o600)
    text = (
        f"[services.s]\nrun = {ready}\nready = {{ notify = true }}\n"
        f"[services.pair]\nrun = {program('obeys_term')}\ninstances = 2\n"
        f"[tasks.steady]\nrun = {program('numbered', 1_000_000, 0.001, side)}\n"
        f'[tasks.stopped]\nrun = {deaf}\ngraceful_stop = "6s"\n'
        f'[tasks.late]\nrun = {deaf}\ntimeout = "15s"\ngraceful_stop = "10ms"\n'
        f"[tasks.queue]\nrun = {program('in_parts', go, 'first', 'second', 3)}\n"
    )
    for name, (first, second, _) in HALVES.items():
        text += f"[tasks.{name}]\nrun = {program('in_parts', go, first, second, 3)}\n"
    daemon.write(
        text.replace("[tasks.terminal]", "[tasks.terminal]\ntty = true") + 'secrets = { P = "${file:secret}" }\n'
    )
    daemon.start()
    runs = {name: daemon.trigger(name) for name in (*HALVES, "steady", "stopped", "late", "queue")}
    waiting = daemon.trigger("queue")
    for name in HALVES:
        until(partial(shown, daemon, runs[name]), f"the first half of {name}")
    until(lambda: all(daemon.lines(runs[name]) for name in ("steady", "stopped", "late")), "all of them to run")
    daemon.request("POST", f"/api/runs/{runs['stopped']}/stop")
    services = {run["id"] for run in daemon.runs("pair")}
    upgrade(daemon, new)
    assert {run["id"] for run in daemon.runs("pair")} == services
    assert not is_ready(daemon)
    assert daemon.run(waiting)["status"] == "pending"
    go.touch()
    until(lambda: is_ready(daemon), "the service to be ready")
    for name in HALVES:
        assert daemon.ended(runs[name])["exitCode"] == 3
        assert [re.sub("\x1b\\[[0-9;]*m", "", text) for text in daemon.texts(runs[name])] == HALVES[name][2]
    for run in (runs["queue"], waiting):
        assert daemon.ended(run)["exitCode"] == 3
    ends: dict[str, Any] = {name: daemon.ended(runs[name]) for name in ("stopped", "late")}
    assert {name: (run["endReason"], run["exitCode"]) for name, run in ends.items()} == {
        "stopped": ("stopped", SIGKILLED),
        "late": ("timeout", SIGKILLED),
    }
    daemon.request("POST", f"/api/runs/{runs['steady']}/stop")
    assert daemon.ended(runs["steady"])["endReason"] == "stopped"
    own = [f"line {number}" for number in side.read_text().split()]
    assert daemon.texts(runs["steady"]) in (own, own[:-1])
    assert daemon.stop() == 0


@pytest.mark.parametrize("old", RELEASES)
def test_there_and_back_under_load(daemon: Installation, tmp_path: Path, old: str) -> None:
    """An upgrade from a release and back, under full output and with runs starting, loses no line and no run."""
    flood = f"{shell_program('numbered')} 100000 0 {tmp_path}/$RINGWARD_RUN_ID; exit 7"
    daemon.install(old)
    daemon.write(
        f"[tasks.steady]\nrun = {program('numbered', 1_000_000, 0.005, tmp_path / 'steady')}\n"
        f'[tasks.flood]\nrun = "{flood}"\nmax_concurrent = 2\n'
        '[tasks.short]\nrun = "echo $RINGWARD_RUN_ID"\nmax_concurrent = 2\n'
        f"[services.s]\nrun = {program('obeys_term')}\n"
    )
    daemon.start()
    (service,) = daemon.runs("s")
    steady, floods, shorts, over = daemon.trigger("steady"), list[str](), list[str](), threading.Event()

    def trigger() -> None:
        while not over.wait(0.05):
            with contextlib.suppress(OSError, HTTPException):  # a release may refuse requests during an upgrade
                answer = daemon.request("POST", "/api/tasks/short/run")
                if answer.status == HTTPStatus.CREATED:
                    shorts.append(answer.json()["id"])

    triggering = threading.Thread(target=trigger)
    triggering.start()
    try:
        for new in ("first", old):
            floods.append(daemon.trigger("flood"))
            until(lambda: all(has_begun(daemon, run) for run in (steady, floods[-1])), "their first lines")
            upgrade(daemon, new)
            shorts.append(daemon.trigger("short"))
    finally:
        over.set()
        triggering.join()
    for run in floods:
        assert daemon.ended(run)["exitCode"] == 7
        assert raw(daemon, run) == lines_written(tmp_path / run)
    for run in shorts:
        assert daemon.ended(run)["exitCode"] == 0
        assert raw(daemon, run) == [run]
    daemon.request("POST", f"/api/runs/{steady}/stop")
    assert daemon.ended(steady)["endReason"] == "stopped"
    assert raw(daemon, steady) in (lines_written(tmp_path / "steady"), lines_written(tmp_path / "steady")[:-1])
    assert [run["id"] for run in daemon.runs("s")] == [service["id"]]
    assert daemon.stop() == 0


@pytest.mark.parametrize("old", [*RELEASES, "copy"])
def test_each_helper_of_an_old_scheduler_restarts(daemon: Installation, tmp_path: Path, old: str) -> None:
    """After an installer has replaced all files, a running scheduler restarts each helper that dies, and each works.

    Each helper of the root that dies is restarted, too, and runs continue.
    """
    daemon.add("copy", {"supervisor/version.py": (f'"{VERSION}"', '"0.0.9"')})
    daemon.install(old)
    kinds = ["watcher", "notifier", "exporter", "filewatcher"]
    exported, place, side = tmp_path / "exported", tmp_path / "in", tmp_path / "side"
    place.mkdir()
    text = f"[tasks.steady]\nrun = {program('numbered', 1_000_000, 0.01, side)}\n"
    text += f"[services.s]\nrun = {program('obeys_term')}\nready = {{ log = 'ready' }}\n"
    text += 'live = { exec = ["true"], every = "1s" }\n'
    text += "[tasks.quick]\nrun = 'echo quick'\n[tasks.failing]\nrun = 'exit 3'\n"
    text += '[notifiers.n]\nurl = "json://127.0.0.1:9"\n[[routes]]\nnotify = ["n"]\n'
    text += f'[exports.e]\ntype = "file"\npath = "{exported}"\n'
    text += f'[tasks.changed]\non_change = "{place}/*"\nsettle = "50ms"\nrun = \'cat $RINGWARD_FILES\'\n'
    daemon.write(text)
    daemon.start()
    scheduler = daemon.helper("ringward scheduler").pid
    steady = daemon.trigger("steady")
    until(lambda: is_ready(daemon), "the service to be ready")
    daemon.ended(daemon.trigger("failing"))
    before = {kind: until(partial(helper_of, daemon, kind), f"the {kind}") for kind in kinds}
    until(lambda: "cannot deliver" in daemon.own_output(), "the notifier to have loaded all of its modules")
    (daemon.data / "janitor.lock").unlink(missing_ok=True)
    daemon.install("first")
    for process in before.values():
        process.kill()
    daemon.ended(daemon.trigger("failing"))
    for kind, killed in before.items():
        until(partial(helper_of, daemon, kind, other_than=killed.pid), f"another {kind}")
    assert daemon.helper("ringward scheduler").pid == scheduler
    assert daemon.request("POST", "/api/tasks/s/restart").status < 300
    until(lambda: len(daemon.runs("s")) == 2 and is_ready(daemon), "the watcher to see the line of the next run")
    quick = daemon.ended(daemon.trigger("quick"))["id"]
    until((daemon.data / "janitor.lock").exists, "a janitor")  # one starts whenever there is work
    (place / "file").write_text("x")
    until(lambda: daemon.runs("changed"), "a run for the changed file")
    assert daemon.helper("ringward scheduler").pid == scheduler
    assert "Traceback" not in daemon.own_output()
    if old != "copy":
        assert_root_restarts_helpers(daemon)
    daemon.request("POST", f"/api/runs/{steady}/stop")
    assert daemon.ended(steady)["endReason"] == "stopped"
    own = [f"line {number}" for number in side.read_text().split()]
    assert daemon.texts(steady) in (own, own[:-1])
    upgrade(daemon, "first")  # its database may have another schema until then
    until(lambda: quick in exported.read_text(), "its line to be delivered")
    assert daemon.stop() == 0


READY, TRIAL = "INFO scheduler: ready: ", "INFO supervisor: upgrade: t"


def assert_root_restarts_helpers(daemon: Installation) -> None:
    """Kill each helper of the root; check that it is restarted, and that the service continues."""
    service = daemon.runs("s")[-1]["id"]
    daemon.kill_helper("ringward gunicorn")
    scheduler, starts = daemon.helper("ringward scheduler"), daemon.own_output().count(READY)
    scheduler.kill()
    until(lambda: daemon.own_output().count(READY) > starts or TRIAL in daemon.own_output(), "the next scheduler")
    if TRIAL in daemon.own_output():  # the scheduler is newer than the root
        until(lambda: "upgraded from" in daemon.own_output(), "the upgrade")
    daemon.replaced("ringward scheduler", scheduler.pid)
    daemon.kill_helper("ringward gunicorn")
    for zygote in daemon.children("ringward spawner"):
        zygote.kill()
    old_watcher = until(lambda: watcher(daemon), "the watcher")
    old_watcher.kill()
    until(lambda: (now := watcher(daemon)) and now.pid != old_watcher.pid, "another watcher")
    assert daemon.ended(daemon.trigger("failing"))["exitCode"] == 3
    assert daemon.runs("s")[-1]["id"] == service
    assert is_ready(daemon)


def helper_of(daemon: Installation, kind: str, other_than: int = 0) -> psutil.Process | None:
    """Return a helper of the scheduler, with another pid."""
    children = daemon.children(f"ringward {kind}", of="ringward scheduler")
    return next((process for process in children if process.pid != other_than), None)


def start(daemon: Installation, side: Path) -> str:
    """Start a run that prints numbered lines and a run that fails at once; return the id of the first."""
    daemon.write(
        f'[tasks.steady]\nrun = {program("numbered", 1_000_000, 0.001, side)}\n[tasks.quick]\nrun = "exit 3"\n'
    )
    daemon.start()
    run = daemon.trigger("steady")
    until(lambda: daemon.lines(run), "its first line")
    return run


def assert_continues(daemon: Installation, run: str, side: Path) -> None:
    """Check that the run continues without a gap, that another run works, and that the shutdown is clean."""
    count = len(daemon.lines(run))
    until(lambda: len(daemon.lines(run)) > count, "more lines")
    assert daemon.ended(daemon.trigger("quick"))["exitCode"] == 3
    daemon.request("POST", f"/api/runs/{run}/stop")
    assert daemon.ended(run)["endReason"] == "stopped"
    own = [f"line {number}" for number in side.read_text().split()]
    assert daemon.texts(run) in (own, own[:-1])
    assert daemon.stop() == 0


def test_version_with_other_processes_refuses(daemon: Installation, tmp_path: Path) -> None:
    """A version without the module ``ringward`` refuses in its trial, and the newer version continues."""
    run = start(daemon, tmp_path / "side")
    daemon.add("other")
    (tmp_path / "other" / "ringward.py").unlink()
    daemon.install("other")
    refused = daemon.cli("upgrade")
    assert refused.returncode == 1
    assert f"{VERSION} continues" in refused.stderr
    assert "No module named ringward" in refused.stderr
    daemon.install("first")
    assert_continues(daemon, run, tmp_path / "side")


def renamed(directory: Path, old: str, new: str) -> None:
    """Rename an attribute in all modules of the root; its name in the formats is unchanged."""
    for path in directory.rglob("*.py"):
        before = r"(?<=\binstance\.)" if path.name in ("schema.py", "table.py") else r"\b"
        path.write_text(re.sub(rf"{before}{old}\b", new, path.read_text()))


FIELD = "    ready_at: int | None = None\n"


def test_attributes_and_fields_can_change(tmp_path: Path) -> None:
    """A version with a renamed attribute and a new field takes over everything and hands it back unchanged."""
    daemon = Installation(tmp_path)
    try:
        schema = {"supervisor/root/handover/state_schema.py": (FIELD, f"{FIELD}    weight: int = 7\n")}
        daemon.add("changed", {"supervisor/version.py": (f'"{VERSION}"', '"0.1.1"'), **schema})
        renamed(tmp_path / "changed/supervisor/root", "sweep_interval_s", "search_pause_s")
        assert "search_pause_s" in (tmp_path / "changed/supervisor/root/process/managed_process.py").read_text()
        run = start(daemon, tmp_path / "side")
        for name, version in (("changed", "0.1.1"), ("first", VERSION)):
            daemon.install(name)
            done = daemon.cli("upgrade")
            assert done.returncode == 0, done
            assert daemon.get("/api/daemon").json()["version"] == version
        assert_continues(daemon, run, tmp_path / "side")
    finally:
        daemon.clean()
