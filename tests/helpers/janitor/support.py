"""Helpers of the janitor tests: a data directory with logs, and the janitor as the scheduler starts it."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from logring.layout import STDOUT, RingShape
from logring.log_paths import log_path
from logring.logfile.log_file import LogFileWriter
from logring.reader import LogReader
from logring.ring.writer import RingWriter
from store.database import open_writer
from supervisor.ipc.helper_messages import encode, receive
from supervisor.ipc.log_jobs import JanitorAnswer, JanitorJob, JanitorReport, JanitorRequest
from tests.logring.support.rings import read_all, texts

HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000
EAGER = "import os, sys; os.nice = lambda _: 0; from supervisor.helpers.janitor.__main__ import main; "
"""Code that keeps the janitor's normal priority, because at its low one other tests would starve it."""
COMMAND = [sys.executable, "-I", "-c", f"{EAGER}sys.exit(main())"]


class DataDirectory:
    """A data directory with a database and logs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        open_writer(self.database).close()

    @property
    def database(self) -> str:
        return str(self.directory / "ringward.db")

    def log(self, task: str, number: int, count: int = 400, *, ended_ms: int = NOW_MS, sealed: bool = True) -> str:
        """Write the log of run `number` of a task, with `count` lines, and return its path."""
        run_id = f"01ARZ3{number:020d}"
        path = log_path(str(self.directory), task, run_id)
        writer = RingWriter.new(str(self.directory / "ring"), run_id, RingShape(1000))
        file = LogFileWriter(path, writer, 1000)
        writer.append(STDOUT, b"".join(b"%s\n" % text for text in self.texts(number, count)), ended_ms)
        if sealed:
            writer.seal(ended_ms)
            file.finish()
        else:
            file.write_unfinished()
            file.close()
            os.unlink(self.directory / "ring")
        writer.close()
        os.utime(path, ns=(ended_ms * 1_000_000, ended_ms * 1_000_000))
        return path

    def texts(self, number: int, count: int = 400) -> list[bytes]:
        return [b"line %d of run %d" % (line, number) for line in range(count)]

    def job(
        self,
        *,
        compress_after_ms: int = 0,
        max_log_bytes: int | None = None,
        look: bool = True,
        copy: bool = False,
    ) -> JanitorJob:
        return JanitorJob(
            data_dir=str(self.directory),
            runtime_dir=str(self.directory),
            database=self.database,
            log_level="debug",
            look=look,
            copy=copy,
            compress_after_ms=compress_after_ms,
            max_log_bytes=max_log_bytes,
        )

    def logs(self) -> list[str]:
        return sorted(str(path) for path in self.directory.glob("logs/*/*/*.log"))

    def others(self) -> list[str]:
        """Return files that are not logs, and directories without logs."""
        logs = self.logs()
        return sorted(
            str(path)
            for path in self.directory.glob("logs/**/*")
            if str(path) not in logs and not any(log.startswith(f"{path}/") for log in logs)
        )


def lines_of(path: str) -> list[bytes]:
    reader = LogReader(None, path)
    try:
        return texts(read_all(reader))
    finally:
        reader.close()


def occupied(paths: list[str]) -> int:
    return sum(os.stat(path).st_blocks * 512 for path in paths)


class Janitor(NamedTuple):
    """A janitor process with the connection to it."""

    process: subprocess.Popen[str]
    sock: socket.socket

    def ended(self) -> str:
        """Wait for the end of the process, which must succeed; return its log."""
        _, logged = self.process.communicate()
        assert self.process.returncode == 0, logged
        return logged


def start(job: JanitorJob | None, command: list[str] = COMMAND) -> Janitor:
    """Start the janitor, and send it a job, if there is one."""
    ours, theirs = socket.socketpair()
    with theirs:
        argv = [*command, "--fd", str(theirs.fileno())]
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
    if job is not None:
        ours.sendall(encode(JanitorRequest(job)))
    return Janitor(process, ours)


def finished(janitor: Janitor) -> tuple[JanitorReport, str]:
    """Wait for the end of a janitor; return its report and its log."""
    with janitor.sock:
        logged = janitor.ended()
        answer = receive(janitor.sock, JanitorAnswer)
    assert answer is not None
    return answer.report, logged


def run(job: JanitorJob) -> tuple[JanitorReport, str]:
    """Run a janitor from start to end; return its report and its log."""
    return finished(start(job))
