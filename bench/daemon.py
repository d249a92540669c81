"""A real daemon to measure: ``ringward up`` with its own configuration and data directory."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from bench.client import Client, Failed

RINGWARD = Path(os.environ.get("BENCH_RINGWARD") or Path(sys.executable).parent / "ringward")
"""The program to measure. ``make bench`` names that of an environment without the tools for development."""
DISK = "/var/tmp"
"""Directory for logs and floors; it must be on a disk, not in shared memory."""
PASSWORD = "correct horse battery"
_DEADLINE_S = 60.0


class Daemon:
    """A context that starts the daemon, and removes it and its data at the end."""

    def __init__(
        self, definitions: str, *, start: bool = True, cores: Sequence[int] = (), program: Path = RINGWARD
    ) -> None:
        """`cores`: the processors for the daemon and its children; empty means all."""
        self._program = program
        self.directory = Path(tempfile.mkdtemp(prefix="ringward-bench-", dir=DISK))
        self._reserved = _reserved()
        self.port = self._reserved.getsockname()[1]
        self.config = self.directory / "ringward.toml"
        self.config.write_text(
            f'[daemon]\ndata_dir = "data"\n[http]\nlisten = ["127.0.0.1:{self.port}"]\n{definitions}'
        )
        self.config.chmod(0o600)
        self.process: subprocess.Popen[bytes] | None = None
        self._start = start
        self._cores = cores

    def __enter__(self) -> Self:
        if self._start:
            try:
                self.launch()
                self.wait_ready()
            except BaseException:
                self._clean()
                raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"the daemon said:\n{(self.directory / 'output').read_text()}", file=sys.stderr)
        self._clean()

    def launch(self) -> None:
        """Start ``ringward up`` without waiting."""
        command = [str(self._program), "up", "--config", str(self.config)]
        if self._cores:
            command = ["taskset", "--cpu-list", ",".join(map(str, self._cores)), *command]
        with open(self.directory / "output", "ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "RINGWARD_PASSWORD": PASSWORD},
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until the API answers and the scheduler accepts commands.

        Raises:
            Failed: the daemon ended, or was not ready within a minute.
        """
        deadline_s = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError, Failed):
                client = self.client()
                client.send("GET", "/readyz")
                status, _ = client.answer()
                client.close()
                if status == 200:
                    return
            if self.process is None or self.process.poll() is not None:
                raise Failed(f"the daemon ended:\n{(self.directory / 'output').read_text()}")
            time.sleep(0.01)
        raise Failed("the daemon is not ready after a minute")

    def client(self) -> Client:
        """Open a new connection."""
        return Client(self.port, PASSWORD)

    @property
    def authorization(self) -> str:
        """Return the authorization header."""
        return "Basic " + base64.b64encode(f":{PASSWORD}".encode()).decode()

    @property
    def pid(self) -> int:
        """Return the pid of the supervisor."""
        assert self.process is not None
        return self.process.pid

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the daemon, the supervisor first; leave out processes of runs."""
        root = psutil.Process(self.pid)
        return [root, *(child for child in root.children(recursive=True) if title(child).split(" ")[0] == "ringward")]

    def remove_logs(self) -> None:
        """Delete the log files, so that the kernel need not write them to the disk."""
        shutil.rmtree(self.directory / "data" / "logs", ignore_errors=True)

    def stop(self) -> float:
        """Stop the daemon with SIGTERM, and return the seconds that it took.

        Raises:
            Failed: the daemon reported an error.
        """
        assert self.process is not None
        start_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(_DEADLINE_S)
        took_s = time.monotonic() - start_s
        if status:
            raise Failed(f"exit status {status}:\n{(self.directory / 'output').read_text()}")
        return took_s

    def _clean(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(Failed, subprocess.TimeoutExpired):
                self.stop()
            if self.process.poll() is None:
                self._kill()
        self._reserved.close()
        identity = self.directory / "data" / "id"
        if identity.exists():
            for base in ("/run/ringward", f"/dev/shm/ringward-{os.getuid()}"):
                shutil.rmtree(f"{base}/{identity.read_text().strip()}", ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _kill(self) -> None:
        children = psutil.Process(self.pid).children(recursive=True)
        for one in (psutil.Process(self.pid), *children):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        assert self.process is not None
        self.process.wait(_DEADLINE_S)


def toml(argv: Sequence[object]) -> str:
    """Return a command as a TOML list."""
    return json.dumps([str(word) for word in argv])


def title(process: psutil.Process) -> str:
    """Return the title that ps shows, or an empty text for a process that is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _reserved() -> socket.socket:
    """Reserve a port without listening: the kernel gives it only to servers that name it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock
