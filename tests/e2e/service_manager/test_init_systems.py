"""Init systems start, supervise and stop the daemon, with the files that ``ringward service install`` writes."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.daemon import RINGWARD, Daemon
from tests.support.host_features import require, require_unpacked
from tests.support.paths import ROOT
from tests.support.waiting import until

UNPACKED = ROOT / "build" / "inits"
"""Debian packages of runit and OpenRC, as unpacked by ``.ci/run``."""


class Scanner:
    """runsvdir or s6-svscan on a directory of the test."""

    command: str
    init: str
    services: str

    def __init__(self, daemon: Daemon, place: Path) -> None:
        self.require()
        if " " in str(ROOT):
            pytest.skip(f"init systems cannot start a program below {ROOT}, because of the space")
        self.daemon = daemon
        self.scan = place / "scan"
        self.scan.mkdir()
        self.link = self.scan / "ringward"
        self.directory = place / "root" / self.services / "ringward"
        self.output = place / "said"
        self._env = {**daemon.environment(), "PATH": f"{UNPACKED}/usr/bin:{os.environ['PATH']}"}
        installed = daemon.cli("service", "install", "--init", self.init, "--root", f"{place}/root")
        assert installed.returncode == 0, installed.stderr
        shutil.rmtree(self.directory / "log")  # it would write to this machine's /var/log
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [self.command, self.scan], stdout=output, stderr=output, env=self._env, start_new_session=True
            )

    def require(self) -> None:
        """Skip the test if the init system is missing."""
        raise NotImplementedError

    def call(self, *words: object) -> str:
        """Run one of its tools and wait for it."""
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=self._env, timeout=90)
        assert done.returncode == 0, (done.args, done.stdout, done.stderr, self.output.read_text())
        return done.stdout

    def close(self) -> None:
        """Remove everything, however far the test got."""
        with contextlib.suppress(psutil.NoSuchProcess):
            all_of_it = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
            for process in all_of_it:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()


class Runit(Scanner):
    command = "runsvdir"
    init = "runit"
    services = "etc/sv"

    def require(self) -> None:
        require_unpacked("inits")

    def start(self) -> None:
        self.link.symlink_to(self.directory)
        status = ["sv", "status", str(self.link)]
        until(lambda: subprocess.run(status, capture_output=True, env=self._env).returncode == 0, "runsv")

    def up(self) -> None:
        self.call("sv", "u", self.link)

    def ready(self) -> None:
        self.call("sv", "-w", 60, "start", self.link)  # waits for the script `check`

    def pid(self) -> int:
        return int((self.directory / "supervise" / "pid").read_text() or 0)

    def reload(self) -> None:
        self.call("sv", "hup", self.link)

    def stop(self) -> None:
        self.call("sv", "-w", 60, "down", self.link)

    def is_down(self) -> bool:
        status = self.call("sv", "status", self.link)
        return status.startswith("down: ") and "want up" not in status

    def go(self) -> None:
        self.link.unlink()
        self.call("sv", "-w", 60, "exit", self.directory)


class S6(Scanner):
    command = "s6-svscan"
    init = "s6"
    services = "etc/s6/sv"

    def require(self) -> None:
        require("s6-svscan")

    def start(self) -> None:
        until((self.scan / ".s6-svscan" / "control").exists, "s6-svscan")
        self.call("s6-svlink", self.scan, self.directory)

    def up(self) -> None:
        self.call("s6-svc", "-u", self.link)

    def ready(self) -> None:
        self.call("s6-svwait", "-U", "-t", 60000, self.link)

    def pid(self) -> int:
        return int(self.call("s6-svstat", "-o", "pid", self.link))

    def reload(self) -> None:
        self.call("s6-svc", "-h", self.link)

    def stop(self) -> None:
        self.call("s6-svc", "-wD", "-T", 60000, "-d", self.link)

    def is_down(self) -> bool:
        return self.call("s6-svstat", "-o", "up,wantedup", self.link).split() == ["false", "false"]

    def go(self) -> None:
        self.call("s6-svunlink", self.scan, "ringward")


OPENRC = """
set -eu
mount --make-rprivate /
mount -t tmpfs none "$PLACE/over"
overlay() {
    mkdir "$PLACE/over/$1" "$PLACE/over/$1.work"
    mount -t overlay none -o "lowerdir=$2:$3,upperdir=$PLACE/over/$1,workdir=$PLACE/over/$1.work" "$3"
}
overlay lib "$UNPACKED/lib" /usr/lib
overlay sbin "$UNPACKED/sbin" /usr/sbin
mkdir -p "$PLACE/root/etc/runlevels/default" "$PLACE/root/etc/insserv.conf.d"
touch "$PLACE/root/etc/insserv.conf"
overlay etc "$PLACE/root/etc" /etc
mount --bind "$PLACE/root/etc/init.d" /etc/init.d
mount -t tmpfs none /var/log
mount -t tmpfs none /run
mount -t tmpfs none /sys/fs/cgroup
cd /run
mkdir openrc
for state in daemons exclusive failed hotplugged inactive options scheduled started starting stopping tmp; do
    mkdir "openrc/$state"
done
echo default >openrc/softlevel

ready() { until "$RINGWARD" health --config "$CONFIG" 2>/dev/null; do :; done; }
rc-update add ringward default
rc-service ringward start
ready
first=$(cat "$DATA/lock")
kill -9 "$first"
while [ "$(cat "$DATA/lock")" = "$first" ]; do sleep 0.05; done
ready
sed -i s/tasks.old/tasks.new/ "$CONFIG"
rc-service ringward reload
rc-service ringward status
rc-service ringward stop
[ ! -e "$SOCKET" ]
rc-update delete ringward default
echo '[http]' >"$CONFIG"
echo 'listen = 1' >>"$CONFIG"
! rc-service ringward start
grep -q 'all ended' /var/log/ringward.log
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount what OpenRC needs at its fixed places")
def test_openrc(daemon: Daemon, tmp_path: Path) -> None:
    """The script starts, reloads and stops the daemon; supervise-daemon replaces a killed one.

    An invalid configuration is reported at once. A mount namespace isolates everything, and ends with its process 1.
    """
    require_unpacked("inits")
    require("unshare", "bash")
    (tmp_path / "over").mkdir()
    daemon.write("[tasks.old]\nrun = 'true'\n")
    assert daemon.cli("service", "install", "--init", "openrc", "--root", f"{tmp_path}/root").returncode == 0
    places = {"PLACE": tmp_path, "UNPACKED": UNPACKED, "RINGWARD": RINGWARD, "CONFIG": daemon.config}
    places |= {"DATA": daemon.data, "SOCKET": Path(daemon.socket)}
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", OPENRC],
        env={
            **daemon.environment(),
            **{name: str(path) for name, path in places.items()},
            "PATH": f"{UNPACKED}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "status: started" in done.stdout
    assert "added    new" in done.stdout
    assert "http.listen" in done.stderr


@pytest.fixture(params=[Runit, S6], ids=["runit", "s6"])
def init(request: pytest.FixtureRequest, daemon: Daemon, tmp_path: Path) -> Iterator[Runit | S6]:
    daemon.write("[tasks.old]\nrun = 'true'\n")
    manager: Runit | S6 = request.param(daemon, tmp_path)
    yield manager
    manager.close()


def test_runit_and_s6(init: Runit | S6, daemon: Daemon) -> None:
    """Readiness is reported, a killed daemon is replaced, and a stop is clean.

    The signals of the init system reload. An invalid configuration is not retried again and again.
    """
    init.start()
    init.ready()
    until(lambda: daemon.get("/api/tasks/old").status == 200, "the task")
    first = init.pid()
    os.kill(first, 9)
    until(lambda: init.pid() not in (0, first), "another daemon")
    init.ready()
    daemon.config.write_text(daemon.config.read_text().replace("tasks.old", "tasks.new"))
    init.reload()
    until(lambda: daemon.get("/api/tasks/new").status == 200, "the reload")
    second = psutil.Process(init.pid())
    init.stop()
    assert not second.is_running()
    assert not Path(daemon.socket).exists()
    daemon.config.write_text("[http]\nlisten = 1\n")
    init.up()
    until(lambda: "http.listen" in init.output.read_text() and init.is_down(), "the init system to stop restarting it")
    init.go()
    assert not (init.directory / "supervise" / "pid").exists() or init.pid() == 0
