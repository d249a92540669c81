"""A real sshd for tests: on a loopback port, with its own keys, as a child of the test."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.host_features import require
from tests.support.ports import free_port
from tests.support.waiting import until


class Sshd:
    """The server. It admits clients with its key as the user of the test."""

    def __init__(self) -> None:
        shell = pwd.getpwuid(os.geteuid()).pw_shell
        if shell.endswith(("/nologin", "/false")):
            pytest.skip(f"sshd needs a login shell to run commands; this user has {shell}")
        require("sshd", "ssh", "ssh-keygen")
        self.directory = Path(tempfile.mkdtemp(prefix="rw-sshd-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        for name in ("host", "client"):
            path = self.directory / name
            subprocess.run([require("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd requires this compiled-in path
        (self.directory / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\n"
            f"HostKey {self.directory}/host\n"
            f"AuthorizedKeysFile {self.directory}/client.pub\n"
            "PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
        )
        self.start()

    @property
    def client(self) -> list[str]:
        """Return the command line of ssh."""
        options = ["UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "LogLevel=ERROR", "IdentitiesOnly=yes"]
        named = [f"-o{option}" for option in options]
        return [require("ssh"), "-F", "none", "-p", str(self.port), "-i", str(self.directory / "client"), *named]

    def start(self) -> None:
        """Start sshd and wait until it accepts a login."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [require("sshd"), "-D", "-e", "-f", self.directory / "sshd_config"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._lets_in, "sshd")

    def _lets_in(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"sshd ended: {(self.directory / 'log').read_text()}")
        return subprocess.run([*self.client, "127.0.0.1", "true"], capture_output=True, timeout=60).returncode == 0

    def stop(self) -> None:
        """Accept no new logins; existing sessions stay."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        """Stop the server and remove its files."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
