"""``ringward upgrade --from-here``: the daemon moves to the environment of the command."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.version import VERSION
from tests.e2e.upgrade.test_upgrade import answer, result
from tests.e2e.upgrade.test_versions import NEWER, assert_unharmed, start, version
from tests.support.installation import Installation
from tests.support.waiting import until

NOBODY = 65534


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(tmp_path / "old")
    yield installation
    installation.clean()


@pytest.fixture(scope="module")
def staying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A daemon for tests of refused requests, with a run that each of them leaves alone."""
    installation = Installation(tmp_path_factory.mktemp("staying"))
    start(installation)
    yield installation
    installation.clean()


@pytest.fixture
def newer(tmp_path: Path) -> Installation:
    """Another environment, with a newer version."""
    installation = Installation(tmp_path / "new")
    installation.add("second", NEWER)
    installation.install("second")
    return installation


def from_here(newer: Installation, daemon: Installation, *options: str) -> subprocess.CompletedProcess[str]:
    """Run ``upgrade --from-here`` of the newer environment for the daemon."""
    return subprocess.run(
        [*newer.command(), "upgrade", "--from-here", *options, "--config", str(daemon.config)],
        capture_output=True,
        text=True,
        env=daemon.environment(),
        timeout=120,
    )


def assert_continues(daemon: Installation) -> None:
    """Check that the run continues, that new runs work, and that no line was lost."""
    (run,) = [run["id"] for run in daemon.runs("t")]
    count = len(daemon.lines(run))
    until(lambda: len(daemon.lines(run)) > count, "more lines")
    assert daemon.ended(daemon.trigger("quick"))["exitCode"] == 3
    lines = daemon.texts(run)
    assert lines == [f"line {number}" for number in range(len(lines))]


def assert_refused(done: subprocess.CompletedProcess[str], daemon: Installation, *messages: str) -> None:
    assert done.returncode == 1, done
    assert "ringward: not upgraded" in done.stderr
    for text in messages:
        assert text in done.stderr
    assert version(daemon) == VERSION
    assert not (daemon.runtime_dir() / "upgrade-from.json").exists()


def test_daemon_moves_to_the_calling_environment(daemon: Installation, newer: Installation) -> None:
    """Runs continue without losing a line, a disabled service stays stopped, and all processes are of the new one."""
    run = start(daemon)
    with daemon.config.open("a") as config:
        config.write('[services.web]\nrun = "exec sleep 1000"\n')
    assert daemon.request("POST", "/api/daemon/reload").status == 200
    assert daemon.request("POST", "/api/units/stop", {"names": ["web"], "disable": True}).status == 200
    pid = daemon.pid
    done = from_here(newer, daemon, "--if-different")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Ringward {VERSION} -> 99.0\n", "")
    assert (daemon.task("web")["state"], "withheld" in daemon.task("web")) == ("stopped", True)
    assert (daemon.pid, version(daemon)) == (pid, "99.0")
    assert answer(daemon)["environment"] == str(newer.environment_dir)
    shutil.rmtree(daemon.environment_dir)
    for title in ("ringward scheduler", "ringward gunicorn"):
        daemon.kill_helper(title)
    until(daemon.ready, "others of the environment that is left")
    again = from_here(newer, daemon, "--if-different")
    assert (again.returncode, again.stdout) == (0, "Ringward 99.0 is already running\n")
    assert_unharmed(daemon, run)


def test_same_version_of_another_environment(daemon: Installation, newer: Installation) -> None:
    """``--if-different`` moves the daemon to another environment of the same version."""
    newer.install("first")
    run = start(daemon)
    done = from_here(newer, daemon, "--if-different")
    assert (done.returncode, done.stdout) == (0, f"Ringward {VERSION} -> {VERSION}\n")
    assert answer(daemon)["environment"] == str(newer.environment_dir)
    assert_unharmed(daemon, run)


def test_writable_environment_is_refused(staying: Installation, newer: Installation) -> None:
    """A path, a file of a package, or a parent directory that others can change is named with the remedy."""
    daemon = staying
    number = answer(daemon)["number"]
    module = newer.directory / "second" / "supervisor" / "version.py"
    for path, mode in (
        (newer.environment_dir, 0o777),
        (newer.directory, 0o775),
        (newer.environment_dir / "pyvenv.cfg", 0o666),
        (module, 0o646),
    ):
        before = path.stat().st_mode
        path.chmod(mode)
        assert_refused(from_here(newer, daemon), daemon, f"{path} is writable by ", f"(mode {mode:04o}); run: chmod ")
        path.chmod(before)
    assert answer(daemon)["number"] == number
    assert_continues(daemon)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_environment_of_another_user_is_refused(staying: Installation, newer: Installation) -> None:
    """A prefix or an interpreter of a user besides root and the daemon's is refused."""
    daemon = staying
    for path, remedy in ((newer.environment_dir, "chown root"), (newer.python, "chown -h root")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        assert_refused(from_here(newer, daemon), daemon, f"{path} belongs to user {NOBODY}; run: {remedy} {path}\n")
        os.chown(path, 0, 0, follow_symlinks=False)
    assert_continues(daemon)


def test_daemon_checks_the_request_itself(staying: Installation, newer: Installation) -> None:
    """The daemon refuses requests of other users or for paths that others can change, and accepts each request once."""
    daemon = staying
    request = daemon.runtime_dir() / "upgrade-from.json"
    newer.environment_dir.chmod(0o777)
    named = {"python": str(newer.python), "prefix": str(newer.environment_dir), "packages": []}
    exposed = f"{newer.environment_dir} is writable by everyone (mode 0777); run: chmod go-w {newer.environment_dir}"
    requests = [
        (json.dumps(named), 0o600, exposed),
        (json.dumps({**named, "python": "python"}), 0o600, '"python" is not an absolute path'),
        ("{", 0o600, f"{request} does not name an environment"),
        (json.dumps([named]), 0o600, f"{request} does not name an environment"),
        (json.dumps(named), 0o666, f"{request} is writable by users other than root"),
    ]
    for number, (text, mode, reason) in enumerate(requests, answer(daemon)["number"] + 1):
        request.write_text(text)
        request.chmod(mode)
        os.kill(daemon.pid, signal.SIGUSR2)
        outcome = result(daemon, number)
        assert outcome["state"] == "refused"
        assert reason in outcome["why"]
        assert not request.exists()
    assert daemon.cli("upgrade").returncode == 0
    assert answer(daemon)["environment"] == str(daemon.environment_dir)
    assert_continues(daemon)


def test_broken_environment(staying: Installation, newer: Installation) -> None:
    """Without packages, or without an interpreter, the trial fails, and the old version continues."""
    daemon = staying
    (newer.directory / "second" / "store").unlink()
    assert_refused(from_here(newer, daemon), daemon, f"{VERSION} continues: ", "No module named 'store'")
    named = {"python": f"{newer.python}.none", "prefix": str(newer.environment_dir), "packages": []}
    request = daemon.runtime_dir() / "upgrade-from.json"
    request.write_text(json.dumps(named))
    request.chmod(0o600)
    refused = daemon.cli("upgrade")
    assert_refused(refused, daemon, f"cannot start the test of {newer.python}.none: No such file or directory")
    assert_continues(daemon)
