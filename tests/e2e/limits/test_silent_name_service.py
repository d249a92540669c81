"""A name service that does not answer, through the real daemon."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import PYTHON, Daemon

_PYTHON = """
import pwd, sys
from ringward import run
really = pwd.getpwnam
def getpwnam(name):
    if name == "far":
        open({fifo!r}).close()
        name = "nobody"
    return really(name)
pwd.getpwnam = getpwnam
_, _, _, process, *rest = sys.argv[1:]
if process == "root":
    sys.executable = {python!r}
sys.argv = [process, *rest]
sys.exit(run(process))
"""


class SilentNames(Daemon):
    """A daemon for which the lookup of the user "far" blocks until a pipe is written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._fifo = directory / "names"
        os.mkfifo(self._fifo)
        script = directory / "python.py"
        self._python = directory / "python"
        script.write_text(_PYTHON.format(fifo=str(self._fifo), python=str(self._python)))
        self._python.write_text(f'#!/bin/sh\nexec "{PYTHON}" -I "{script}" "$@"\n')
        self._python.chmod(0o700)

    def command(self) -> list[str]:
        code = f"import sys; sys.executable = {str(self._python)!r}; from supervisor.cli.entry import main; main()"
        return [str(PYTHON), "-I", "-c", code]

    def answer(self) -> None:
        """Answer the blocked lookups."""
        self._fifo.write_text("")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SilentNames]:
    if os.geteuid() != 0:
        pytest.skip("only root can change the user of a process")
    new_daemon = SilentNames(tmp_path)
    yield new_daemon
    new_daemon.clean()


def test_silent_name_service_delays_only_its_user(daemon: SilentNames) -> None:
    """Without an answer, only the runs of that user stay pending; they can be stopped, and start when it arrives."""
    daemon.write(
        '[tasks.t]\nrun = "id -un"\nuser = "far"\nmax_concurrent = 2\n[tasks.other]\nrun = "echo hello"\n'
        '[services.s]\nrun = "exec sleep 1000"\nuser = "far"\n'
    )
    daemon.start()
    first, second = daemon.trigger("t"), daemon.trigger("t")
    assert daemon.ended(daemon.trigger("other"))["endReason"] == "succeeded"
    assert [daemon.run(run_id)["status"] for run_id in (first, second)] == ["pending", "pending"]
    assert daemon.task("s")["state"] == "starting"
    assert daemon.request("POST", f"/api/runs/{second}/stop").status == 204
    assert daemon.run(second)["endReason"] == "stopped"
    assert daemon.request("POST", "/api/tasks/s/stop").status == 204
    assert daemon.task("s")["state"] == "stopped"
    daemon.answer()
    assert daemon.ended(first)["endReason"] == "succeeded"
    assert daemon.texts(first) == ["nobody"]
    assert daemon.texts(second) == []
    assert daemon.stop() == 0
