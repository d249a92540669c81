"""A real systemd starts, supervises, reloads and stops the daemon, with the unit of ``ringward service install``.

It is process 1 of its own namespaces, on a temporary copy of this host's files, in a cgroup of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from supervisor.host.cgroups import Cgroups
from tests.docs.blocks import blocks
from tests.support.daemon import RINGWARD, Daemon
from tests.support.host_features import require, require_cgroups
from tests.support.installation import Installation
from tests.support.paths import ROOT
from tests.support.waiting import until

BOOT = """
set -eu
mount --make-rprivate /
mount -t tmpfs none "$PLACE/over"
mkdir "$PLACE/over/upper" "$PLACE/over/work" "$PLACE/over/root"
mount -t overlay none -o "lowerdir=$LOWER,upperdir=$PLACE/over/upper,workdir=$PLACE/over/work" "$PLACE/over/root"
cd "$PLACE/over/root"
mount -t proc none proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
mount -t sysfs -o ro none sys
mount -t cgroup2 none sys/fs/cgroup
for place in run dev; do mount -t tmpfs -o mode=755 none "$place"; done
mount -t tmpfs -o mode=1777 none tmp
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 none dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs none dev/shm
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
for place; do  # the tmpfs above may hide them
    mkdir -p ".$place"
    mount --bind "$place" ".$place"
done
mount -t tmpfs none etc/systemd/system
cp -r "$PLACE/installed/etc/systemd/system/." etc/systemd/system/
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --unit=small.target
"""
SMALL = """\
[Unit]
DefaultDependencies=no
Requires=systemd-journald.service
After=systemd-journald.service
"""
# Dependencies for a minimal target, the paths of the test, and a longer watchdog interval.
HERE = """\
[Unit]
DefaultDependencies=no
Wants=
After=
[Service]
WatchdogSec=20
TimeoutAbortSec=60
RestartSec=0
ReadWritePaths={places}
PrivateTmp=no
"""


class Systemd:
    """A booted systemd, on a temporary copy of this host's files or of another root."""

    def __init__(self, daemon: Daemon, place: Path, other: Path | None = None) -> None:
        hierarchy = Cgroups.find()
        assert hierarchy is not None
        self._cgroup = Path(hierarchy.directory).parent / f"test-systemd-{os.getpid()}"
        self._cgroup.mkdir()
        (place / "over").mkdir()
        sockets = str(Path(daemon.socket).parent)
        self._write_units(daemon, place, sockets)
        places = [str(place), sockets]
        if other is None:
            places += [str(ROOT), sys.prefix, sys.base_prefix]
        join = f"echo $$ >{self._cgroup}/cgroup.procs && exec "
        apart = "unshare --mount --pid --ipc --uts --cgroup --fork --kill-child sh -c"
        self._process = subprocess.Popen(
            ["sh", "-c", f'{join}{apart} "$0" boot "$@"', BOOT, *places],
            env={"PATH": os.environ["PATH"], "LOWER": str(other or "/"), "PLACE": str(place)},
            start_new_session=True,
        )
        (self._init,) = until(psutil.Process(self._process.pid).children, "process 1")
        until(lambda: "running" in self.call("systemctl", "is-system-running", check=False), "systemd to be up")

    def _write_units(self, daemon: Daemon, place: Path, sockets: str) -> None:
        root = place / "installed"
        done = daemon.cli("service", "install", "--init", "systemd", "--hardened", "--root", str(root))
        assert done.returncode == 0, done.stderr
        units = root / "etc/systemd/system"
        (units / "small.target").write_text(SMALL)
        (units / "ringward.service.d" / "zz.conf").write_text(HERE.format(places=f"{place} {sockets}"))

    def call(self, *words: str, check: bool = True) -> str:
        """Run a command there and wait for its end; without a deadline, because the end of process 1 also ends it."""
        enter = [
            "nsenter",
            "--target",
            str(self._init.pid),
            "--mount",
            "--pid",
            "--ipc",
            "--cgroup",
            "--root",
            "--wd=/",
        ]
        done = subprocess.run([*enter, *words], capture_output=True, text=True)
        assert not check or done.returncode == 0, (done, self.journal())
        return done.stdout

    def journal(self) -> str:
        return self.call("journalctl", "--unit=ringward", "--output=cat", "--no-pager", check=False)

    def show(self, name: str) -> str:
        return self.call("systemctl", "show", "-P", name, "ringward").strip()

    def close(self) -> None:
        """Kill process 1, which ends all others."""
        self._process.kill()
        self._process.wait()
        until(
            lambda: not [path for path in self._cgroup.rglob("cgroup.procs") if path.read_text()], "everything to end"
        )
        for directory, _, _ in os.walk(self._cgroup, topdown=False):
            os.rmdir(directory)


@pytest.fixture
def systemd(daemon: Daemon, tmp_path: Path) -> Iterator[Systemd]:
    if os.geteuid() != 0:
        pytest.skip("only root can boot systemd in namespaces")
    require("/lib/systemd/systemd", "unshare", "nsenter")
    require_cgroups().close()
    daemon.write("[tasks.long]\nrun = 'echo ready; sleep 1000'\n[tasks.other]\nuser = 'nobody'\nrun = 'id -un'\n")
    new_systemd = Systemd(daemon, tmp_path)
    yield new_systemd
    new_systemd.close()


def from_elsewhere(directory: Path) -> list[str]:
    """Return the command that upgrades the daemon from another environment below a directory."""
    other = Installation(directory / "other")
    return [*other.command(), "upgrade", "--from-here"]


def test_system_unit(systemd: Systemd, daemon: Daemon, tmp_path: Path) -> None:
    """The unit starts the daemon, reports readiness, and keeps runs if the daemon is killed or hangs.

    Tasks can have users although the unit is hardened. An upgrade from another environment names the unit in a warning.
    A stop leaves nothing.
    """
    systemd.call("systemctl", "start", "ringward")
    until(lambda: daemon.get("/api/tasks/long").status == 200, "the task")
    run = daemon.trigger("long")
    until(lambda: daemon.texts(run), "its first line")
    until(lambda: systemd.show("NFileDescriptorStore") != "0", "its descriptors to be stored")
    other = daemon.ended(daemon.trigger("other"))
    assert (other["endReason"], daemon.texts(other["id"])) == ("succeeded", ["nobody"])

    daemon.config.write_text(daemon.config.read_text() + "[tasks.more]\nrun = 'true'\n")
    systemd.call("systemctl", "reload", "ringward")
    assert daemon.get("/api/tasks/more").status == 200

    def restarted(times: int) -> bool:
        return (systemd.show("NRestarts"), systemd.show("ActiveState")) == (str(times), "active")

    for number, signal in enumerate(("KILL", "STOP"), 1):
        systemd.call("kill", f"-{signal}", systemd.show("MainPID"))
        until(partial(restarted, number), "the next daemon to be ready", 90)
        assert daemon.run(run)["status"] == "running"
    assert "Fatal Python error: Aborted" in systemd.journal()

    main = systemd.show("MainPID")
    moved = systemd.call("sh", "-c", '"$@" 2>&1', "sh", *from_elsewhere(tmp_path), "--config", str(daemon.config))
    assert (
        f"warning: ringward.service starts {RINGWARD}, which does not belong to {tmp_path}/other/environment; " in moved
    )
    assert systemd.show("MainPID") == main
    assert daemon.run(run)["status"] == "running"

    systemd.call("systemctl", "stop", "ringward")
    assert systemd.show("ActiveState") == "inactive"
    assert systemd.show("Result") == "success"
    assert systemd.show("ControlGroup") == ""
    assert daemon.stored_end(run)[0] == "daemon_stopped"


class UserManager:
    """The systemd of a user, with the unit of the recipe."""

    HOME = "/srv/home"
    USER = "games"
    RUNTIME = "/run/user/5"

    def __init__(self, systemd: Systemd, config: str) -> None:
        self._systemd = systemd
        (unit,) = (block.text for block in blocks(ROOT / "docs/how-to.rst") if block.text.startswith("[Unit]"))
        unit = unit.replace("%h/ringward/.venv/bin/ringward", str(RINGWARD))
        systemd.call("chmod", "711", "/root")  # where the interpreter may be
        systemd.call("install", "-d", "-o", self.USER, "-m", "700", self.RUNTIME)
        self.write(".config/ringward.toml", config)
        self.write(".config/systemd/user/ringward.service", unit)
        properties = ["--property=Delegate=yes", "--property=Type=notify", f"--uid={self.USER}"]
        variables = [f"--setenv=HOME={self.HOME}", f"--setenv=XDG_RUNTIME_DIR={self.RUNTIME}"]
        manager = ["/lib/systemd/systemd", "--user", "--unit=basic.target"]
        systemd.call("systemd-run", "--unit=manager", *properties, *variables, *manager)

    def write(self, name: str, text: str) -> None:
        """Write a file in the home of the user."""
        path = f"{self.HOME}/{name}"
        self._systemd.call("sh", "-c", 'mkdir -p "${1%/*}"; printf %s "$2" >"$1"', "sh", path, text)
        self._systemd.call("chown", "-R", self.USER, self.HOME)

    def call(self, *words: str, check: bool = True) -> str:
        """Run a command as the user."""
        variables = [f"HOME={self.HOME}", f"XDG_RUNTIME_DIR={self.RUNTIME}", "PATH=/usr/bin:/bin"]
        become = ["setpriv", f"--reuid={self.USER}", f"--regid={self.USER}", "--init-groups"]
        return self._systemd.call(*become, "env", *variables, *words, check=check).strip()

    def systemctl(self, *words: str) -> str:
        return self.call("systemctl", "--user", *words)

    def ringward(self, *words: str, check: bool = True) -> str:
        return self.call(str(RINGWARD), *words, "--config", f"{self.HOME}/.config/ringward.toml", check=check)


def test_user_unit(systemd: Systemd) -> None:
    """The unit in the recipe for users starts the daemon, reloads it, and keeps its runs if it is killed."""
    config = "[http]\nlisten = []\n[services.web]\nrun = 'exec sleep 1d'\n[tasks.who]\nrun = 'id -un'\n"
    user = UserManager(systemd, config)
    user.systemctl("enable", "--now", "ringward")
    assert user.ringward("run", "who") == user.USER
    user.ringward("wait", "web", "--for", "running")
    before = user.ringward("runs", "web", "--status", "running")

    user.write(".config/ringward.toml", f"{config}[tasks.more]\nrun = 'true'\n")
    user.systemctl("reload", "ringward")
    assert user.ringward("run", "more") == ""

    user.systemctl("kill", "--kill-whom=main", "--signal=KILL", "ringward")
    until(lambda: user.systemctl("show", "-P", "NRestarts", "ringward") == "1", "another daemon")
    until(lambda: user.ringward("health", check=False) == "ok", "it to take commands")
    after = user.ringward("runs", "web")
    assert before.split("\n")[1].split("\t")[:5] == after.split("\n")[1].split("\t")[:5]
    assert len(after.split("\n")) == len(before.split("\n"))
    user.systemctl("stop", "ringward")


def test_export_to_the_journal(systemd: Systemd, daemon: Daemon) -> None:
    """A real journald has each exported line once, with its fields, in order."""
    daemon.config.write_text(
        daemon.config.read_text()
        + '[exports.journal]\ntype = "journald"\ntasks = "say"\n'
        + "[tasks.say]\nrun = 'seq 200; echo oops >&2'\n"
    )
    systemd.call("systemctl", "start", "ringward")
    until(lambda: daemon.get("/api/tasks/say").status == 200, "the task")
    run = daemon.trigger("say")
    daemon.ended(run)

    def entries() -> list[dict[str, str]]:
        answer = systemd.call("journalctl", "SYSLOG_IDENTIFIER=say", "--output=json", "--no-pager", check=False)
        return [json.loads(line) for line in answer.splitlines() if line.startswith("{")]

    until(lambda: len(entries()) >= 201, "the entries")
    journal = entries()
    assert [journal_entry["MESSAGE"] for journal_entry in journal if journal_entry["PRIORITY"] == "6"] == [
        str(number) for number in range(1, 201)
    ]
    assert [journal_entry["MESSAGE"] for journal_entry in journal if journal_entry["PRIORITY"] == "3"] == ["oops"]
    assert sorted(int(journal_entry["RINGWARD_LINE"]) for journal_entry in journal) == list(range(201))
    assert {
        (journal_entry["RINGWARD_RUN_ID"], journal_entry["RINGWARD_TASK"], journal_entry["RINGWARD_INSTANCE"])
        for journal_entry in journal
    } == {(run, "say", "0")}
    systemd.call("systemctl", "stop", "ringward")
