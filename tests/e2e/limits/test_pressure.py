"""Floods, stuck readers, and distant times."""

import os

import psutil
import pytest

from tests.support.daemon import Daemon, gone, program, shell_program
from tests.support.waiting import until


def test_both_streams_wait_for_the_log_file(daemon: Daemon) -> None:
    """A run that floods both streams while its log file cannot be written waits, and loses nothing."""
    flood = f"{shell_program('floods')} 6000000"  # more than a ring of 4 MiB and a pipe of 1 MiB hold
    daemon.write(f'[tasks.t]\nrun = "{flood} & {flood} >&2 & wait"\n')
    daemon.start()
    (daemon.data / "logs").mkdir(mode=0o700)
    (daemon.data / "logs" / "t").write_text("in the way")
    run_id = daemon.trigger("t")
    until(lambda: "cannot write the log file" in daemon.output.read_text(), "the ring to be full")
    until(lambda: daemon.run(run_id)["status"] == "running", "it to be known that it runs")
    (daemon.data / "logs" / "t").unlink()
    assert daemon.ended(run_id)["endReason"] == "succeeded"
    expected = [f"{number:099d}" for number in range(60_000)]
    lines = daemon.lines(run_id)
    for stream in ("stdout", "stderr"):
        assert [line["text"] for line in lines if line["stream"] == stream] == expected


def test_blocked_daemon_output_delays_no_log(daemon: Daemon) -> None:
    """A stopped terminal or an unread pipe as the daemon's output delays no log file."""
    daemon.write(f'[tasks.talk]\nrun = "true"\n[tasks.flood]\nrun = {program("floods", 3_000_000)}\n')
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    while True:
        try:
            os.write(write_end, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(write_end, True)
    try:
        daemon.launch(write_end)
        until(daemon.ready, "the daemon to be ready")
        assert daemon.ended(daemon.trigger("talk"))["endReason"] == "succeeded"
        run = daemon.ended(daemon.trigger("flood"))
        until(lambda: list(daemon.data.glob(f"logs/flood/*/{run['id']}.log")), "the log file")
        assert daemon.get(f"/api/runs/{run['id']}/log?limit=1").json()["totalLines"] == 30_000
        assert daemon.stop() == 0
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.lent
def test_times_beyond_the_epoll_limit(daemon: Daemon) -> None:
    """Times beyond the limit of epoll_wait(2), 24.8 days, work like others."""
    daemon.write(
        '[tasks.t]\nrun = "echo hello"\ntimeout = "365d"\n'
        f'[services.s]\nrun = {program("obeys_term")}\nhealthy_after = "365d"\ngraceful_stop = "365d"\n'
    )
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "running", "the service")
    scheduler = daemon.helper("ringward scheduler").pid
    run = daemon.ended(daemon.trigger("t"))
    assert daemon.texts(run["id"]) == ["hello"]
    assert daemon.helper("ringward scheduler").pid == scheduler
    assert "Traceback" not in daemon.own_output()


def test_silent_runs_leave_nothing(daemon: Daemon) -> None:
    """Runs that print nothing leave no descriptor, no ring, no file and no zombie."""
    daemon.write('[tasks.t]\nrun = ["true"]\nmax_concurrent = 20\nqueue_max = 1000\n')
    daemon.start()
    processes = [psutil.Process(daemon.pid), daemon.helper("ringward scheduler")]
    daemon.ended(daemon.trigger("t"))
    before = [process.num_fds() for process in processes]
    ids = [daemon.trigger("t") for _ in range(200)]
    for run_id in ids:
        assert daemon.ended(run_id)["endReason"] == "succeeded"
    # The sampling of the host has opened some files meanwhile.
    until(
        lambda: all(process.num_fds() < count + 20 for process, count in zip(processes, before, strict=True)),
        "the descriptors to be closed",
    )
    until(lambda: not any(map(gone, psutil.Process(daemon.pid).children())), "all to be reaped")
    assert not list(daemon.data.glob("logs/t/*/*"))
