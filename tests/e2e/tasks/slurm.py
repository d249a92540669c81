"""A real Slurm cluster for tests: one node on loopback, whose daemons are children of the test."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.host_features import require
from tests.support.ports import free_port
from tests.support.waiting import until


class Slurm:
    """The cluster: munged, slurmctld and slurmd."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("munged trusts only directories of root, so only root can start a cluster")
        require("munged", "mungekey", "slurmctld", "slurmd", "srun")
        # Where munged, which runs as root, trusts all parent directories of its socket.
        self.directory = Path(tempfile.mkdtemp(prefix="rw-slurm-", dir="/run"))
        self.directory.chmod(0o755)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log = (self.directory / "log").open("ab")
        self.config = self.directory / "slurm.conf"
        self._configure()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment that clients need."""
        return {"SLURM_CONF": str(self.config)}

    def ask(self, *argv: str) -> str:
        """Run a client and return its output."""
        done = subprocess.run(
            [require(argv[0]), *argv[1:]],
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            timeout=60,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def _configure(self) -> None:
        there, host = self.directory, socket.gethostname().partition(".")[0]
        ctld, slurmd = free_port(), free_port()
        for name in ("state", "spool"):
            (there / name).mkdir(mode=0o755)
        key = there / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self.config.write_text(
            f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={there}/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation={there}/state
SlurmdSpoolDir={there}/spool
SlurmctldPidFile={there}/slurmctld.pid
SlurmdPidFile={there}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
ReturnToService=2
KillWait=2
MinJobAge=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
        )
        # The node has as many CPUs as its configuration says, regardless of this machine.
        self.config.write_text(self.config.read_text() + "SlurmdParameters=config_overrides\n")

    def _start(self) -> None:
        there = self.directory
        munge = [f"--{name}-file={there}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self._launch("munged", "--foreground", f"--socket={there}/munge.sock", *munge)
        until((there / "munge.sock").exists, "munged")
        self._launch("slurmctld", "-D", "-c", "-f", str(self.config))
        self._launch("slurmd", "-D", "-c", "-f", str(self.config))
        until(lambda: self._said(self.ask("sinfo", "--noheader", "--format=%T") == "idle"), "the node to be idle")

    def _said(self, ready: bool) -> bool:
        if any(process.poll() is not None for process in self._processes):
            raise AssertionError(f"a daemon ended: {(self.directory / 'log').read_text()}")
        return ready

    def _launch(self, name: str, *arguments: str) -> None:
        self._processes.append(
            subprocess.Popen(
                [require(name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        )

    def close(self) -> None:
        """Cancel all jobs, stop the daemons and remove all files."""
        if len(self._processes) > 1:
            self.ask("scancel", "--full", "--signal=KILL", "--user=root")
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)
