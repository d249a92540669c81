"""A real daemon to be measured: ``ringward up`` on a configuration and a data directory of its own."""

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

RINGWARD = Path(sys.executable).parent / "ringward"
DISK = "/var/tmp"
"""Logs and floors are written here: it is to be a disk, not shared memory."""
PASSWORD = "correct horse battery"
_DEADLINE_S = 60.0


class Daemon:
    """Use it as a context: it is started at the beginning and gone, with its data, at the end."""

    def __init__(self, definitions: str, *, start: bool = True, cores: Sequence[int] = ()) -> None:
        """`cores`: what the daemon and all that it starts may run on; empty: every one."""
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
        """Execute ``ringward up``, without waiting for anything."""
        command = [str(RINGWARD), "up", "--config", str(self.config)]
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
        """Until the API answers and the scheduler takes commands.

        Raises:
            Failed: the daemon ended, or it takes a minute.
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
        """A new connection."""
        return Client(self.port, PASSWORD)

    @property
    def authorization(self) -> str:
        """The header with which the API knows a client."""
        return "Basic " + base64.b64encode(f":{PASSWORD}".encode()).decode()

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        assert self.process is not None
        return self.process.pid

    def processes(self) -> list[psutil.Process]:
        """Ours, the supervisor first; instances are left out."""
        root = psutil.Process(self.pid)
        return [root, *(one for one in root.children(recursive=True) if title(one).split(" ")[0] == "ringward")]

    def remove_logs(self) -> None:
        """Drop the log files, and with them what the kernel would still write to the disk."""
        shutil.rmtree(self.directory / "data" / "logs", ignore_errors=True)

    def stop(self) -> float:
        """End it with SIGTERM; returns how many seconds that took.

        Raises:
            Failed: it said that something went wrong.
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
    """A command as a TOML list."""
    return json.dumps([str(word) for word in argv])


def title(process: psutil.Process) -> str:
    """What ps shows of it; nothing of one that has gone, as runs do and what becomes a run."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _reserved() -> socket.socket:
    """Has a port, on which it does not listen: it is given to nobody else, and to who names it as servers do."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock
