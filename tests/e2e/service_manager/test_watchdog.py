"""The service manager notices that the control thread hangs."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import program
from tests.support.manager import Managed, Manager
from tests.support.waiting import until

_PATIENCE_MS = 400


class Watched(Managed):
    """A daemon that its service manager watches, as systemd's WATCHDOG_PID requests."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh", *super().command()]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "WATCHDOG_USEC": str(1000 * _PATIENCE_MS)}


@pytest.fixture
def manager() -> Iterator[Manager]:
    new_manager = Manager()
    yield new_manager
    new_manager.close()


@pytest.fixture
def daemon(tmp_path: Path, manager: Manager) -> Iterator[Watched]:
    watched = Watched(tmp_path, manager)
    yield watched
    watched.clean()


def test_control_thread_is_watched(daemon: Watched, manager: Manager) -> None:
    """Watchdog messages are sent from the start on, after an upgrade, and during a shutdown.

    Runs do not inherit the socket. The stop is announced with its maximum duration. If the service manager kills a hung
    daemon, the log shows the stack of each thread.
    """
    daemon.write(
        f'[tasks.t]\nrun = "env"\n[services.deaf]\nrun = {program("ignores_term")}\ngraceful_stop = "1m"\n',
        daemon='shutdown_timeout = "2m"\ncgroups = "off"\n',
    )
    daemon.start()
    deaf = until(lambda: [run for run in daemon.runs("deaf") if run["status"] == "running"], "the service")[0]["id"]
    until(lambda: daemon.texts(deaf), "its first line")

    def more() -> None:
        before = manager.count("WATCHDOG=1")
        until(lambda: manager.count("WATCHDOG=1") > before + 2, "signs of life")

    more()
    run = daemon.ended(daemon.trigger("t"))
    assert not [line for line in daemon.texts(run["id"]) if line.startswith(("WATCHDOG_", "NOTIFY_"))]
    os.kill(daemon.pid, signal.SIGUSR2)
    until(lambda: manager.count("READY=1") == 2, "the upgrade")
    more()
    os.kill(daemon.pid, signal.SIGTERM)
    until(lambda: manager.count("STOPPING=1") == 1, "the end to begin")
    (stopping,) = [state_message for state_message in manager.told if "STOPPING" in state_message]
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 120_000_000
    more()
    (leftover,) = daemon.children("ignores_term")
    assert daemon.stop(signal.SIGABRT) == -signal.SIGABRT
    leftover.kill()
    text = daemon.output.read_text()
    assert "Fatal Python error: Aborted" in text
    assert "supervisor/root/loop/epoll_watch.py" in text


def test_long_shutdown_extends_its_timeout(daemon: Watched, manager: Manager) -> None:
    """The daemon asks the service manager for more time while runs end; late ends are stored."""
    daemon.write(f"[services.deaf]\nrun = {program('ignores_term')}\n", daemon='shutdown_timeout = "1s"\n')
    daemon.start()
    (run,) = until(lambda: daemon.runs("deaf"), "the service")
    until(lambda: daemon.texts(run["id"]), "its first line")
    (deaf,) = daemon.children("ignores_term")
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    os.kill(daemon.pid, signal.SIGTERM)
    until(lambda: not deaf.is_running(), "the service to be killed")

    def asked_again() -> bool:
        with manager.lock:
            return (
                sum(
                    "EXTEND_TIMEOUT_USEC" in state_message and "STOPPING" not in state_message
                    for state_message in manager.told
                )
                >= 3
            )

    until(asked_again, "requests for more time")
    scheduler.resume()
    assert daemon.process is not None
    assert daemon.process.wait(60) == 0
    assert daemon.stored_end(run["id"]) == ("daemon_stopped", 128 + signal.SIGKILL)
