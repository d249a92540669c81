"""Repeated upgrades of the daemon, without effect on runs."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from logring.reader import LogReader
from tests.e2e.service_manager.test_process_1 import Container, container
from tests.e2e.services.test_readiness import SAY, is_ready, on_flag
from tests.support.daemon import RINGWARD, Daemon, gone, program, shell_program
from tests.support.host_features import require_cgroups
from tests.support.waiting import until

__all__ = ["container"]


def answer(daemon: Daemon) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((daemon.runtime_dir() / "upgrade.json").read_text())
    return document


def upgrade(daemon: Daemon) -> dict[str, Any]:
    """Upgrade; return the result."""
    number = answer(daemon)["number"]
    os.kill(daemon.pid, signal.SIGUSR2)
    return result(daemon, number + 1)


def result(daemon: Daemon, number: int) -> dict[str, Any]:
    """Wait for the end of an upgrade; return its result."""

    def over() -> dict[str, Any] | None:
        latest = answer(daemon)
        return latest if latest["number"] >= number and latest["state"] != "trying" else None

    return until(over, f"the end of upgrade {number}")


def processes(daemon: Daemon) -> dict[str, int]:
    """Return the main processes by run."""
    by_run = {}
    for child in psutil.Process(daemon.pid).children():
        with contextlib.suppress(psutil.Error):
            run = child.environ().get("RINGWARD_RUN_ID")
            if run is not None:
                by_run[run] = child.pid
    return by_run


def shown(daemon: Daemon, run: str) -> bool:
    """Return whether part of its unfinished line is visible."""
    reader = LogReader(str(daemon.runtime_dir() / f"{run}.ring"), None)
    try:
        return any(pending.text for pending in reader.pending())
    finally:
        reader.close()


def has_begun(daemon: Daemon, run: str) -> bool:
    return bool(daemon.get(f"/api/runs/{run}/log?from=0&limit=1").json()["lines"])


def raw(daemon: Daemon, run: str) -> list[str]:
    return daemon.get(f"/api/runs/{run}/log/raw?stream=stdout").body.decode().splitlines()


def lines_written(side: Path) -> list[str]:
    """Return the lines that a numbered program noted."""
    return [f"line {number}" for number in side.read_text().split()]


def test_three_upgrades_lose_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """Three upgrades under full output lose no line, restart no process, and keep each exit status exact."""
    flood = f"{shell_program('numbered')} 100000 0 {tmp_path}/$RINGWARD_RUN_ID; exit 7"
    daemon.write(
        f"[tasks.steady]\nrun = {program('numbered', 1_000_000, 0.005, tmp_path / 'steady')}\n"
        f'[tasks.flood]\nrun = "{flood}"\nmax_concurrent = 3\n'
        f"[services.s]\nrun = {program('obeys_term')}\n"
    )
    daemon.start()
    service = daemon.runs("s")[0]["id"]
    until(lambda: service in processes(daemon), "the service to run")
    steady = daemon.trigger("steady")
    floods = []
    for _ in range(3):
        floods.append(daemon.trigger("flood"))
        until(lambda: all(has_begun(daemon, run) for run in (steady, floods[-1])), "their first lines")
        before = processes(daemon)
        assert upgrade(daemon)["state"] == "done"
        after = processes(daemon)
        assert {run: pid for run, pid in before.items() if run in after}.items() <= after.items()
        assert {steady, service} <= after.keys()
    for run in floods:
        assert daemon.ended(run)["exitCode"] == 7
        assert raw(daemon, run) == lines_written(tmp_path / run)
    daemon.request("POST", f"/api/runs/{steady}/stop")
    assert daemon.ended(steady)["endReason"] == "stopped"
    assert raw(daemon, steady) in (lines_written(tmp_path / "steady"), lines_written(tmp_path / "steady")[:-1])
    assert [run["status"] for run in daemon.runs("s")] == ["running"]
    assert daemon.stop() == 0


@pytest.mark.lent
def test_stops_and_timeouts_continue_after_an_upgrade(daemon: Daemon) -> None:
    """The new supervisor takes the next step of a stop and enforces a timeout that began before."""
    deaf = program("ignores_term")
    daemon.write(
        f'[tasks.stopped]\nrun = {deaf}\ngraceful_stop = "4s"\n'
        f'[tasks.late]\nrun = {deaf}\ntimeout = "10s"\ngraceful_stop = "10ms"\n'
        f"[services.s]\nrun = {program('obeys_term')}\ninstances = 2\n"
    )
    daemon.start()
    stopped, late = daemon.trigger("stopped"), daemon.trigger("late")
    until(lambda: daemon.lines(stopped) and daemon.lines(late), "both to run")
    services = {run["id"] for run in daemon.runs("s")}
    until(lambda: services <= processes(daemon).keys(), "the services to run")
    daemon.request("POST", f"/api/runs/{stopped}/stop")
    before = processes(daemon)
    assert upgrade(daemon)["state"] == "done"
    after = processes(daemon)
    assert {run: after[run] for run in services} == {run: before[run] for run in services}
    for run, reason in ((stopped, "stopped"), (late, "timeout")):
        assert (daemon.ended(run)["endReason"], daemon.ended(run)["exitCode"]) == (reason, 128 + signal.SIGKILL)
        assert daemon.texts(run, "system").count("did not exit in time: sending SIGKILL") == 1


HALVES: dict[str, tuple[str, str, list[str]]] = {
    "line": (r"half a ", r"line", ["half a line"]),
    "pipe": (r"10%\r50%", r"\r100%\n", ["100%"]),
    "terminal": (r"one 1\n\x1b[32mtwo 2\r", r"\x1b[1A\x1b[2Kone 3\ntwo 4\n", ["one 1", "one 3", "two 4"]),
    "secret": (r"it is correct-ho", r"rse-battery\n", ["it is ***"]),
}


@pytest.mark.lent
def test_partial_output_is_completed_after_an_upgrade(daemon: Daemon, tmp_path: Path) -> None:
    """Half a line, a progress bar in a pipe or a terminal, and half a secret are joined with their other halves.

    Readiness that a service announces afterwards is received, and a run keeps its terminal.
    """
    go = tmp_path / "go"
    (daemon.directory / "secret").write_text("correct-horse-battery")
    (daemon.directory / "secret").chmod(0o600)
    ready = on_flag(go, SAY.format(b"READY=1"))
    text = f"[services.s]\nrun = {ready}\nready = {{ notify = true }}\n"
    for name, (first, second, _) in HALVES.items():
        text += f"[tasks.{name}]\nrun = {program('in_parts', go, first, second, 3)}\n"
    text = text.replace("[tasks.terminal]", "[tasks.terminal]\ntty = true")
    daemon.write(text + 'secrets = { PASSWORD = "${file:secret}" }\n')
    daemon.start()
    runs = {name: daemon.trigger(name) for name in HALVES}
    for name, run in runs.items():
        until(partial(shown, daemon, run), f"the first half of {name}")
    assert upgrade(daemon)["state"] == "done"
    assert not is_ready(daemon)
    go.touch()
    until(lambda: is_ready(daemon), "the service to be ready")
    for name, run in runs.items():
        assert daemon.ended(run)["exitCode"] == 3
        assert [re.sub("\x1b\\[[0-9;]*m", "", text) for text in daemon.texts(run)] == HALVES[name][2]


@pytest.mark.lent
def test_streams_and_requests_survive_an_upgrade(daemon: Daemon, tmp_path: Path) -> None:
    """No request is refused during an upgrade, and a stream resumes by its last id without gap or repetition."""
    daemon.write(f"[tasks.t]\nrun = {program('numbered', 3000, 0.001, tmp_path / 'side')}\n")
    daemon.start()
    run = daemon.trigger("t")
    answers: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.005):
            answers.append(daemon.get("/healthz").status)

    asking = threading.Thread(target=ask)
    asking.start()
    seen: list[str] = []
    last: str | None = None
    number = answer(daemon)["number"]
    done = upgrading = False
    while not done:
        stream = daemon.stream(f"/api/runs/{run}/log/stream?from=0", last)
        with contextlib.suppress(http.client.HTTPException):
            for event in stream:
                if event.kind == "line":
                    seen.append(event.data["text"])
                    last = event.id
                done = done or event.kind == "done"
                if not upgrading and len(seen) > 100:
                    upgrading = True
                    os.kill(daemon.pid, signal.SIGUSR2)
        stream.close()
    assert result(daemon, number + 1)["state"] == "done"
    over.set()
    asking.join()
    assert seen == [f"line {number}" for number in range(3000)]
    assert set(answers) == {200}


@pytest.mark.lent
@pytest.mark.parametrize("by", ["an upgrade", "a reload"])
def test_waiting_run_starts_without_its_preforked_child(daemon: Daemon, by: str) -> None:
    """A starting run starts even if the pre-forked process that it waited for is gone."""
    require_cgroups()
    daemon.write('[tasks.t]\nrun = "echo hello"\n')
    daemon.start()
    daemon.ended(daemon.trigger("t"))  # a spare is created after a start, however the daemon was used before
    until(lambda: daemon.children("ringward spare"), "a spare")
    zygote = daemon.helper("ringward spawner")
    zygote.suspend()  # no other spare is created for now
    daemon.ended(daemon.trigger("t"))
    run = daemon.trigger("t")
    number = answer(daemon)["number"]
    if by == "a reload":
        daemon.config.write_text(daemon.config.read_text().replace("[daemon]", '[daemon]\ncgroups = "off"'))
        assert daemon.request("POST", "/api/daemon/reload").status == 200
    else:
        os.kill(daemon.pid, signal.SIGUSR2)
        until(lambda: "upgrade: testing" in daemon.own_output(), "the upgrade to begin")
    with contextlib.suppress(psutil.NoSuchProcess):  # it is replaced after two seconds
        zygote.resume()
    assert daemon.texts(daemon.ended(run)["id"]) == ["hello"]
    if by == "an upgrade":
        assert result(daemon, number + 1)["state"] == "done"


@pytest.mark.lent
def test_early_request_waits_for_the_scheduler(daemon: Daemon) -> None:
    """A request during a previous upgrade is executed when the scheduler of the new version is ready."""
    daemon.write("")
    daemon.start()
    number, before = answer(daemon)["number"], daemon.helper("ringward scheduler").pid
    os.kill(daemon.pid, signal.SIGUSR2)
    until(lambda: daemon.helper("ringward scheduler").pid != before, "the next scheduler")
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    os.kill(daemon.pid, signal.SIGUSR2)
    scheduler.resume()
    until(lambda: answer(daemon)["number"] == number + 2 and answer(daemon)["state"] == "done", "both")
    until(lambda: daemon.own_output().count("upgraded from") == 2, "the log to say so")
    steps = re.findall("upgrade: testing|upgraded from", daemon.own_output())
    assert steps == ["upgrade: testing", "upgraded from"] * 2


def test_requests_during_upgrade_start_and_shutdown(daemon: Daemon) -> None:
    """A request is ignored during an upgrade, deferred during the start, and refused during the shutdown."""
    daemon.write(
        f'[services.s]\nrun = {program("deaf_tree")}\ngraceful_stop = "1h"\n', daemon='shutdown_timeout = "1h"'
    )
    daemon.launch()
    daemon.helper("ringward scheduler")
    os.kill(daemon.pid, signal.SIGUSR2)
    until(lambda: "upgraded from" in daemon.output.read_text(), "the end of the upgrade")
    until(daemon.ready, "the daemon to be ready")
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()  # it has to exit
    os.kill(daemon.pid, signal.SIGUSR2)
    until(lambda: answer(daemon)["number"] == 2, "the second upgrade")
    os.kill(daemon.pid, signal.SIGUSR2)
    until(
        lambda: "upgrade ignored: another upgrade is in progress" in daemon.output.read_text(),
        "a request to be ignored",
    )
    scheduler.resume()
    until(lambda: answer(daemon)["state"] == "done", "the end of the upgrade")
    until(lambda: daemon.output.read_text().count("upgraded from") == 2, "the log to say so")
    assert answer(daemon)["number"] == 2
    until(lambda: daemon.task("s")["instances"][0]["state"] == "running", "the service")
    os.kill(daemon.pid, signal.SIGTERM)
    until(lambda: "shutting down" in daemon.output.read_text(), "the shutdown")
    os.kill(daemon.pid, signal.SIGUSR2)
    until(
        lambda: "upgrade ignored: the daemon is shutting down" in daemon.output.read_text(), "that to be ignored, too"
    )
    assert daemon.stop() == 0


@pytest.mark.parametrize("stage", ["testing the version", "scheduler leaves"])
def test_sigterm_during_an_upgrade(daemon: Daemon, stage: str) -> None:
    """SIGTERM at any stage of an upgrade ends the daemon cleanly."""
    daemon.write(
        f'[services.s]\nrun = {program("obeys_term")}\ngraceful_stop = "1h"\n', daemon='shutdown_timeout = "50s"'
    )
    daemon.start()
    run = until(lambda: [run for run in daemon.runs("s") if run["status"] == "running"], "the service")[0]["id"]
    until(lambda: daemon.texts(run), "its first line")
    scheduler = daemon.helper("ringward scheduler")
    os.kill(daemon.pid, signal.SIGUSR2)
    if stage == "scheduler leaves":
        until(lambda: gone(scheduler), "the scheduler to leave")
    else:
        until(lambda: answer(daemon)["number"] == 1, "the trial")
    assert daemon.stop() == 0
    assert daemon.stored_end(run) == ("daemon_stopped", 5)


def test_process_1_under_a_service_manager(
    container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon stays process 1, and notifies the service manager of the begin and end of an upgrade."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{tmp_path}")
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{tmp_path}")
        try:
            container.write(f"[services.s]\nrun = {program('obeys_term')}\n")
            container.start()
            assert manager.recv(4096).startswith(b"READY=1")
            init = container.init
            runs = until(lambda: [run for run in container.runs("s") if run["status"] == "running"], "the service")
            os.kill(init.pid, signal.SIGUSR2)
            assert manager.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert manager.recv(4096).startswith(b"READY=1")
            assert init.is_running()
            assert [run["id"] for run in container.runs("s")] == [run["id"] for run in runs]
            os.kill(init.pid, signal.SIGTERM)
            assert container.process is not None
            assert container.process.wait(60) == 0
        finally:
            container.clean()


@pytest.mark.lent
def test_upgrade_from_another_environment_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    """``upgrade`` from another environment exits with 1, names both and the remedy, and changes nothing."""
    daemon.write("")
    daemon.start()
    number = answer(daemon)["number"]
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(other)})
    paths = [path for path in sys.path if path]
    Path(packages, "shared.pth").write_text("\n".join(paths))
    command = [f"{other}/bin/python", "-c", "from supervisor.cli.entry import main; main()", "upgrade"]
    done = subprocess.run([*command, "--config", str(daemon.config)], capture_output=True, text=True)
    assert done.returncode == 1, done
    assert f"the daemon runs from {RINGWARD.parents[1]}, and this command belongs to {other}\n" in done.stderr
    assert f"run: {RINGWARD} upgrade\n" in done.stderr
    assert f"move the daemon to {other}: ringward upgrade --from-here\n" in done.stderr
    assert answer(daemon)["number"] == number
