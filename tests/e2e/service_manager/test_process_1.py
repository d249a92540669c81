"""The daemon as process 1 of a container: it reaps foreign processes, and the signals of engines stop it cleanly."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.daemon import Daemon, program
from tests.support.waiting import until

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Container(Daemon):
    """A daemon that is process 1 of its own namespace."""

    def command(self) -> list[str]:
        return [*UNSHARE, *super().command()]

    @property
    def init(self) -> psutil.Process:
        """Return the daemon as seen from outside."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children()[0]


@pytest.fixture
def container(tmp_path: Path) -> Container:
    if subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no process namespace can be made here")
    return Container(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGPWR, signal.SIGRTMIN + 3])
def test_signals_of_container_engines_end_the_daemon(container: Container, number: int) -> None:
    """Each signal that container engines send stops the daemon cleanly, and reaches runs as their stop signal."""
    try:
        container.write(
            f"[tasks.t]\nrun = {program('obeys_term')}\ngraceful_stop = '50s'\n", daemon='shutdown_timeout = "50s"'
        )
        container.start()
        run_id = container.trigger("t")
        until(lambda: container.texts(run_id), "its first line")
        init = container.init
        os.kill(init.pid, number)
        assert container.process is not None
        assert container.process.wait(60) == 0
        assert container.stored_end(run_id) == ("daemon_stopped", 5)
    finally:
        container.clean()


def test_process_1_reaps_adopted_orphans(container: Container) -> None:
    """A foreign process in the namespace that loses its parent is reaped and leaves no zombie."""
    try:
        container.write("")
        container.start()
        init = container.init
        enter = ["nsenter", "--target", str(init.pid), "--pid", "--", "sh", "-c", "sleep 1000 & exit"]
        for _ in range(5):
            subprocess.run(enter, check=True)

        def strangers() -> list[psutil.Process]:
            sleepers = []
            for child in init.children():
                with contextlib.suppress(psutil.NoSuchProcess):  # reaped meanwhile; a zombie still has its name
                    sleepers += [child] if child.name() == "sleep" else []
            return sleepers

        until(lambda: len(strangers()) == 5, "the strangers to be adopted")
        for stranger in strangers():
            stranger.kill()
        until(lambda: not strangers(), "the strangers to be reaped")
    finally:
        container.clean()
