"""A pre-forked child that is killed after it was told to become a run, in the real daemon."""

from pathlib import Path

import psutil
import pytest

from tests.support.daemon import Daemon
from tests.support.host_features import require_cgroups
from tests.support.waiting import until

pytestmark = pytest.mark.lent

TASK = """
[tasks.t]
run = "echo once >> {side}; echo hello"
{more}
[tasks.before]
run = "true"
"""


def begin_in_a_stopped_spare(daemon: Daemon, side: Path, more: str = "") -> tuple[str, psutil.Process]:
    """Start a run whose pre-forked child has its order and cannot act on it."""
    require_cgroups()
    daemon.write(TASK.format(side=side, more=more))
    daemon.start()
    daemon.ended(daemon.trigger("before"))  # a spare is created after a start, however the daemon was used before
    until(lambda: daemon.children("ringward spare"), "a spare")
    spare = daemon.helper("ringward spare")
    spare.suspend()
    run = daemon.trigger("t")
    until(lambda: daemon.run(run)["status"] == "running", "its start")
    return run, spare


@pytest.mark.parametrize(
    "more", ["", "tty = true", 'limits = { memory = "500 MB" }', 'env = { API_TOKEN = "hidden-by-mask" }']
)
def test_run_survives_its_killed_preforked_child(daemon: Daemon, tmp_path: Path, more: str) -> None:
    """The run starts in another process under the same id, executes once and succeeds; its log reports it."""
    side = tmp_path / "side"
    run, spare = begin_in_a_stopped_spare(daemon, side, more)
    spare.kill()
    ended = daemon.ended(run)
    assert (ended["endReason"], ended["exitCode"], side.read_text()) == ("succeeded", 0, "once\n")
    assert daemon.texts(run) == ["hello"]
    line = f"process {spare.pid} was killed before it executed the command: starting another one"
    assert daemon.texts(run, "system").count(line) == 1


def test_run_stopped_before_its_exec_never_executes(daemon: Daemon, tmp_path: Path) -> None:
    """A run that is stopped before its pre-forked child executes anything ends as stopped."""
    side = tmp_path / "side"
    run, _spare = begin_in_a_stopped_spare(daemon, side)
    assert daemon.request("POST", f"/api/runs/{run}/stop").status < 300
    assert daemon.ended(run)["endReason"] == "stopped"
    assert not side.exists()
