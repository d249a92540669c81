"""A booted systemd on a host without Ringward, for packages of a distribution."""

import os
from pathlib import Path

import pytest

from supervisor.config.files.lookup import SYSTEM_DATA, SYSTEM_FILE
from supervisor.version import VERSION
from tests.e2e.service_manager.test_systemd import HERE, SMALL, Systemd
from tests.support.daemon import Daemon
from tests.support.host_features import require, require_cgroups
from tests.support.waiting import until


class Host(Systemd):
    """The systemd, and requests to the daemon that it starts from the package."""

    def __init__(self, daemon: Daemon, place: Path, other: Path | None = None) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can boot systemd in namespaces")
        require("/lib/systemd/systemd", "unshare", "nsenter")
        require_cgroups().close()
        self.daemon = daemon
        daemon.write("[tasks.long]\nrun = 'echo ready; sleep 1000'\n[services.s]\nrun = 'exec sleep 1000'\n")
        daemon.config.write_text(daemon.config.read_text().replace('"data"', f'"{SYSTEM_DATA}"'))
        super().__init__(daemon, place, other)
        self.call("install", "-D", "-m", "640", str(daemon.config), SYSTEM_FILE)

    def _write_units(self, daemon: Daemon, place: Path, sockets: str) -> None:  # noqa: ARG002
        units = place / "installed/etc/systemd/system"
        (units / "ringward.service.d").mkdir(parents=True)
        (units / "small.target").write_text(SMALL)
        (units / "ringward.service.d/zz.conf").write_text(HERE.format(places=f"{place} {sockets}"))

    def output(self, *words: str) -> str:
        """Run a command there; return its output with its errors."""
        return self.call("sh", "-c", '"$@" 2>&1', "sh", *words)

    def wait(self) -> None:
        """Wait until the daemon of the package answers."""
        until(lambda: self.daemon.get("/api/tasks/long").status == 200, "the task")
        assert self.call("ringward", "--version") == f"ringward, version {VERSION}\n"

    def upgrade(self, working: list[str], broken: list[str]) -> None:
        """Install version 99.0, then a broken version, and check that nothing restarts."""
        main = self.show("MainPID")
        run = self.daemon.trigger("long")
        until(lambda: self.daemon.texts(run), "its first line")
        services = until(lambda: self.daemon.runs("s"), "the service")
        self.call(*working)
        assert self.daemon.get("/api/daemon").json()["version"] == "99.0"
        assert "the daemon continues in its version" in self.output(*broken)
        assert self.daemon.get("/api/daemon").json()["version"] == "99.0"
        assert (self.show("MainPID"), self.show("NRestarts")) == (main, "0")
        assert self.daemon.run(run)["status"] == "running"
        assert [run["id"] for run in self.daemon.runs("s")] == [service["id"] for service in services]

    def check_removal(self, config: str = SYSTEM_FILE) -> None:
        """Check that a removal has stopped the daemon, removed the program, and left configuration and data."""
        assert self.show("ActiveState") == "inactive"
        assert self.call("cat", config) == self.daemon.config.read_text()
        assert self.call("ls", f"{SYSTEM_DATA}/ringward.db")
        assert self.call("find", "/usr/lib/ringward", "/usr/bin/ringward", check=False) == ""
