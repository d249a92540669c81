"""The interface of a measured process manager, and the parts that all of them share."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import psutil

from bench.client import Failed
from bench.daemon import DISK
from bench.logs.ingest import Source
from bench.peers.tail import Tail

DEADLINE_S = 60.0
_POLL_S = 0.002
_LOOK_S = 0.01
_STALLED_S = 5.0
_MARK = "BENCH_PEER"


class Lost(Failed):
    """Output did not reach the log."""


@dataclass(frozen=True)
class Program:
    """A program that a peer runs."""

    name: str
    argv: list[str]
    service: bool
    """True: starts at once, and again whenever it ends. False: starts on demand, once."""


class Peer(ABC):
    """A process manager with its own directory for configuration, logs and sockets.

    The context starts it with its programs. At the end it is gone, with every process that it started. The output of a
    program is in :meth:`log`.
    """

    name: ClassVar[str]
    program: ClassVar[str]
    """The executable."""
    install: ClassVar[str]
    """How to install it."""

    def __init__(self, executable: str, programs: Sequence[Program], *, start: bool = True) -> None:
        self.executable = executable
        self.directory = Path(tempfile.mkdtemp(prefix="ringward-bench-", dir=DISK))
        self.programs = [Program(program.name, self._plain(program), program.service) for program in programs]
        for program in programs:
            self.log(program.name).touch()
        self.environment = {**os.environ, _MARK: str(self.directory)}
        self._start = start
        self._executed: list[subprocess.Popen[bytes]] = []

    def _plain(self, program: Program) -> list[str]:
        """Move the code of ``-c CODE`` into a file, because quoting rules of configuration files differ."""
        *words, option, code = ["", *program.argv]
        if option != "-c":
            return program.argv
        path = self.directory / f"{program.name}.code"
        path.write_text(code)
        return [*words[1:], str(path)]

    def __enter__(self) -> Self:
        if self._start:
            try:
                self.launch()
                self.wait_answer()
                self.load()
            except BaseException as err:
                self.__exit__(type(err), err, None)
                raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"{self.name} said:\n{self.own_output()}", file=sys.stderr)
        self._clean()

    @classmethod
    def keen(cls) -> "type[Peer]":
        """Return the peer configured to restart programs as soon as possible."""
        return cls

    @abstractmethod
    def launch(self) -> None:
        """Start it without waiting."""

    @abstractmethod
    def ask(self) -> None:
        """Send a request that changes nothing.

        Raises:
            Failed: the answer is invalid.
            OSError: no process listens yet.
        """

    def load(self) -> None:  # noqa: B027  (most read their programs at start)
        """Define its programs, once it answers."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """Return the pid of its only process."""

    @abstractmethod
    def running(self) -> int:
        """Return the number of running programs."""

    @abstractmethod
    def send_start(self, name: str) -> None:
        """Send the request to start a program."""

    @abstractmethod
    def started(self) -> None:
        """Wait for the answer to that request.

        Raises:
            Failed: the answer is an error.
        """

    @abstractmethod
    def rest(self, name: str) -> None:
        """Wait until a program can start again after its last line."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def start(self, name: str) -> None:
        """Start a program, and wait for the answer."""
        self.send_start(name)
        self.started()

    def flood(self, names: Sequence[str], source: Source, size_bytes: int) -> float:
        """Start programs that print `size_bytes` each; return the seconds until all last lines are readable.

        Raises:
            Lost: output is missing.
        """
        for name in names:
            os.truncate(self.log(name), 0)
        start_s = time.monotonic()
        for name in names:
            self.start(name)
        for name in names:
            self.wait_logged(name, size_bytes, source.last)
        took_s = time.monotonic() - start_s
        for name in names:
            self.rest(name)
        return took_s

    def first_lines(self, name: str, count: int) -> list[float]:
        """Start a program so many times; return the seconds from each request to its line at a reader."""
        times = []
        with Tail(self.log(name)) as tail:
            for _ in range(count):
                start_ns = time.monotonic_ns()
                self.send_start(name)
                _, at_ns = tail.next(DEADLINE_S)
                self.started()
                self.rest(name)
                times.append((at_ns - start_ns) / 1e9)
        return times

    def ticks(self, name: str, count: int) -> list[float]:
        """Start a program that prints the clock so many times; return the seconds of each line to a reader."""
        times: list[float] = []
        with Tail(self.log(name)) as tail:
            self.start(name)
            while len(times) < count:
                lines, at_ns = tail.next(DEADLINE_S)
                times += [(at_ns - int(line)) / 1e9 for line in lines]
            self.rest(name)
        return times

    def short_runs(self, name: str, count: int) -> float:
        """Run a program so many times over several connections; return the runs a second until all are in the history.

        Raises:
            NotImplementedError: it has no runs, only processes.
        """
        raise NotImplementedError

    def log(self, name: str) -> Path:
        """Return the path of a program's output, which may be truncated between two starts."""
        return self.directory / f"{name}.log"

    def own_output(self) -> str:
        """Return its own output."""
        output = self.directory / "output"
        return output.read_text(errors="replace") if output.exists() else ""

    def execute(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run its executable in the background."""
        with open(self.directory / "output", "ab") as output:
            process = subprocess.Popen(
                [self.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env=self.environment,
                start_new_session=True,
            )
        self._executed.append(process)
        return process

    def wait_answer(self) -> None:
        """Wait until it answers.

        Raises:
            Failed: it ended, or does not answer within a minute.
        """
        for _ in self._looks(_POLL_S, "its first answer"):
            with contextlib.suppress(OSError, Failed):
                self.ask()
                return

    def wait_running(self, count: int) -> None:
        """Wait until so many programs run.

        Raises:
            Failed: they do not run within a minute.
        """
        for _ in self._looks(_LOOK_S, f"{count} running programs"):
            if self.running() == count:
                return

    def wait_logged(self, name: str, size_bytes: int, last: str) -> None:
        """Wait until a log has that size and ends with that line.

        Raises:
            Lost: the log has stopped growing.
            Failed: the log is not complete within a minute, or has another last line.
        """
        path = self.log(name)
        before_bytes, grown_s = 0, time.monotonic()
        for _ in self._looks(_POLL_S, f"{size_bytes} bytes in {path.name}"):
            now_bytes, now_s = path.stat().st_size, time.monotonic()
            if now_bytes >= size_bytes:
                break
            if now_bytes != before_bytes:
                before_bytes, grown_s = now_bytes, now_s
            elif now_s - grown_s > _STALLED_S:
                raise Lost(f"{self.name}: {now_bytes} of {size_bytes} bytes came to {path.name}")
        with path.open("rb") as file:
            file.seek(size_bytes - len(last) - 1)
            if file.read() != f"{last}\n".encode():
                raise Failed(f"the last line of {path.name} is another one")

    def _looks(self, every_s: float, what: str) -> Iterator[None]:
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            yield
            if any(one.poll() for one in self._executed):
                raise Failed(f"{self.name} ended before {what}")
            time.sleep(every_s)
        raise Failed(f"{self.name}: still waiting for {what}")

    def stop(self) -> tuple[float, int]:
        """Stop it with SIGTERM; return the seconds, and the number of processes that it leaves behind.

        Raises:
            Failed: it does not run, or does not end within a minute.
        """
        process = psutil.Process(self.pid)
        pidfd = os.pidfd_open(process.pid)
        try:
            children = process.children(recursive=True)
            start_s = time.monotonic()
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if not select.select([pidfd], [], [], DEADLINE_S)[0]:
                raise Failed(f"{self.name} does not end")
            took_s = time.monotonic() - start_s
        finally:
            os.close(pidfd)
        return took_s, sum(map(_lives, children))

    def _clean(self) -> None:
        self.close()
        with contextlib.suppress(OSError, Failed, psutil.Error):
            self.stop()
        deadline_s = time.monotonic() + DEADLINE_S
        for process in self._executed:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(DEADLINE_S)
        while (left := list(self._marked())) and time.monotonic() < deadline_s:
            for one in left:
                with contextlib.suppress(psutil.Error):
                    one.kill()
            psutil.wait_procs(left, timeout=1.0)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _marked(self) -> Iterator[psutil.Process]:
        """Return all processes with this environment, including orphans."""
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if self.owns(one):
                    yield one

    def owns(self, process: psutil.Process) -> bool:
        """Return whether the environment of a process shows that it belongs to this peer."""
        return _lives(process) and process.environ().get(_MARK) == str(self.directory)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
