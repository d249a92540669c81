"""A real daemon for tests: ``ringward up`` as a child process, with the test's own configuration."""

import contextlib
import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil

from store.database import open_reader
from store.runs.writes import get_run
from supervisor.host.cgroups import Cgroup, Cgroups, name_of_cgroup
from tests.support.client import Answer, Stream, UnixConnection
from tests.support.lean import environment
from tests.support.paths import PROGRAMS
from tests.support.ports import free_port
from tests.support.waiting import until

PYTHON = environment() / "bin" / "python"
RINGWARD = PYTHON.parent / "ringward"
WITH_EXTRAS = Path(sys.executable).parent / "ringward"
"""The same program with all extras, for tests that need one of them."""
PASSWORD = "correct horse battery"
_SHOWN_CHARACTERS = 20_000


class Daemon:
    """A daemon and its data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "ringward.toml"
        self.data = directory / "data"
        self.output = directory / "output"
        # The path of a Unix socket is at most 107 bytes, which pytest's directories can exceed.
        self._socket_dir = tempfile.mkdtemp(prefix="rw-")
        self.socket = f"{self._socket_dir}/http.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self.executable = RINGWARD
        self.options: list[str] = []
        """Options of ``ringward up``, in addition to ``--config``."""
        self._output_before = 0
        """Length of the output of earlier tests."""

    def own_output(self) -> str:
        """Return the daemon's output during this test."""
        return self.output.read_bytes()[self._output_before :].decode()

    def write(self, text: str, *, daemon: str = "", http: str = "") -> None:
        """Write the configuration: `text` after the daemon's own tables."""
        tables = f'[daemon]\ndata_dir = "data"\n{daemon}'.rstrip()
        listen = f'[http]\nlisten = ["127.0.0.1:{free_port()}"]\nsocket = "{self.socket}"'
        self.config.write_text(f"{tables}\n{listen}\n{http}\n{text}")
        self.config.chmod(0o600)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "RINGWARD_PASSWORD": PASSWORD}

    def command(self) -> list[str]:
        """Return the command line of the daemon."""
        return [str(self.executable)]

    def client_command(self) -> list[str]:
        """Return the command line of a client of the daemon."""
        return [str(self.executable)]

    def start(self) -> Self:
        """Start the daemon and wait until it accepts commands."""
        self.launch()
        until(self.ready, "the daemon to be ready")
        return self

    def launch(self, stderr: int | None = None, *, stdout: int | None = None, close_fds: bool = True) -> None:
        """Start the daemon. Its output goes to `self.output`, or to the test's descriptors."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.command(), "up", "--config", str(self.config), *self.options],
                stdin=subprocess.DEVNULL,
                stdout=output if stdout is None else stdout,
                stderr=subprocess.STDOUT if stderr is None else stderr,
                env=self.environment(),
                start_new_session=True,
                close_fds=close_fds,
            )

    def ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon ended: {self.output.read_text()}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/readyz").status == 200
        return False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop the daemon and return its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def clean(self) -> None:
        """Kill all processes, remove all directories, and print the output, which pytest shows after a failure."""
        if self.output.exists():
            print(self.output.read_text(errors="replace")[-_SHOWN_CHARACTERS:])
        if self.process is not None and self.process.poll() is None:
            children = psutil.Process(self.pid).children(recursive=True)
            runs = {name_of_cgroup(child.pid) for child in children} - {""}
            self.process.kill()
            self.process.wait()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            place = Cgroups.find() if runs else None
            if place is not None:
                for run in runs:
                    until(Cgroup(f"{place.directory}/{run}").remove, f"the processes of {run} to end")
        shutil.rmtree(self._socket_dir, ignore_errors=True)
        (self.data / "reserve").unlink(missing_ok=True)  # pytest keeps the directories of some tests
        if (self.data / "id").exists():
            for directory in self.runtime_dirs():
                shutil.rmtree(directory, ignore_errors=True)

    def runtime_dirs(self) -> list[Path]:
        """Return the directories that may have its rings and sockets."""
        identity = (self.data / "id").read_text().strip()
        bases = [f"/dev/shm/ringward-{os.getuid()}", f"{os.environ.get('XDG_RUNTIME_DIR')}/ringward"]
        if os.geteuid() == 0:  # other users may not read the directory of root
            bases.insert(0, "/run/ringward")
        return [Path(base, identity) for base in bases]

    def runtime_dir(self) -> Path:
        """Return the directory of its rings and sockets."""
        (runtime_dir,) = (path for path in self.runtime_dirs() if path.is_dir())
        return runtime_dir

    def remove_config_copies(self) -> None:
        """Remove both copies of the active configuration, so that the next scheduler reads the file."""
        for place in (self.data, self.runtime_dir()):
            (place / "config.last").unlink()

    def holding(self, text: str) -> list[str]:
        """Return the names of files in its directories that contain `text`."""
        log_names = []
        below = (walked for place in (self.data, *self.runtime_dirs()) for walked in os.walk(place))
        for path in (Path(folder, name) for folder, _, names in below for name in names):
            with contextlib.suppress(FileNotFoundError):  # files come and go while it runs
                if path.is_file() and text.encode() in path.read_bytes():
                    log_names.append(path.name)
        return log_names

    # HTTP over the Unix socket, which trusts the user of the tests.

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = UnixConnection(self.socket)
        try:
            data = None if body is None else json.dumps(body)
            sent = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, data, {**sent, **(headers or {})})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def stream(self, path: str, last_event_id: str | None = None) -> Stream:
        connection = UnixConnection(self.socket)
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        connection.request("GET", path, headers=headers)
        return Stream(connection, connection.getresponse())

    def trigger(self, task: str) -> str:
        answer = self.request("POST", f"/api/tasks/{quote(task)}/run")
        assert answer.status == 201, answer.body
        run_id: str = answer.json()["id"]
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        answer = self.get(f"/api/runs/{run_id}?naming=camel")
        assert answer.status == 200, answer.body
        body: dict[str, Any] = answer.json()
        return body

    def ended(self, run_id: str) -> dict[str, Any]:
        """Wait until a run has ended, and return it."""
        return until(lambda: (run := self.run(run_id))["status"] == "ended" and run, f"run {run_id} to end")

    def stored_end(self, run_id: str) -> tuple[str | None, int]:
        """Return the end reason and exit code of a run from the database of a stopped daemon."""
        with contextlib.closing(open_reader(str(self.data / "ringward.db"))) as database:
            run = get_run(database, run_id)
        assert run is not None
        return run.end_reason, run.exit_code

    def runs(self, task: str) -> list[dict[str, Any]]:
        """Return all runs of a task, oldest first."""
        answer = self.get(f"/api/tasks/{quote(task)}/runs?limit=1000&sortField=createdAt&sortDirection=asc")
        assert answer.status == 200, answer.body
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    def task(self, name: str) -> dict[str, Any]:
        body: dict[str, Any] = self.get(f"/api/tasks/{quote(name)}").json()
        return body

    def lines(self, run_id: str) -> list[dict[str, Any]]:
        """Return the whole log of a run."""
        lines: list[dict[str, Any]] = []
        while True:
            page = self.get(f"/api/runs/{run_id}/log?from={len(lines)}&limit=10000").json()
            if not page["lines"]:
                return lines
            lines += page["lines"]

    def log_file(self, run_id: str) -> Path:
        """Return the log file of an ended run with output; it is complete once its ring is gone."""

        def complete() -> Path | None:
            if any((place / f"{run_id}.ring").exists() for place in self.runtime_dirs()):
                return None
            return next(self.data.glob(f"logs/*/*/{run_id}.log"), None)

        return until(complete, f"the log file of run {run_id}")

    def hits(self, task: str, query: str) -> list[dict[str, Any]]:
        """Return all hits of a search, from all pages."""
        items: list[dict[str, Any]] = []
        more = ""
        while True:
            page = self.get(f"/api/tasks/{quote(task)}/log/search?{query}{more}").json()
            items += page["items"]
            if page["exhausted"]:
                return items
            more = f"&cursor={page['nextCursor']}"

    def texts(self, run_id: str, stream: str = "stdout") -> list[str]:
        return [line["text"] for line in self.lines(run_id) if line["stream"] == stream]

    def helper(self, title: str) -> psutil.Process:
        """Return the oldest child with this title; a fork initially has the title of its parent."""
        processes: list[psutil.Process] = []

        def look() -> bool:
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if " ".join(child.cmdline()) == title:  # psutil splits titles at spaces
                        processes.append(child)
            return bool(processes)

        until(look, f"the process {title}")
        return min(processes, key=lambda child: (child.create_time(), child.pid))

    def children(self, words: str, of: str = "") -> list[psutil.Process]:
        """Return the child processes with `words` in their command lines: of the root, or `of` a helper."""
        parent = self.helper(of) if of else psutil.Process(self.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            return [child for child, line in command_lines(parent.children()).items() if words in line]
        return []

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the supervisor, so that it sees all changes of the block together, however long they take."""
        supervisor = psutil.Process(self.pid)
        supervisor.suspend()
        try:
            until(lambda: supervisor.status() == psutil.STATUS_STOPPED, "the supervisor to be suspended")
            yield
        finally:
            supervisor.resume()

    def family(self) -> list[psutil.Process]:
        """Return the supervisor and all its descendants."""
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]

    def kill_helper(self, title: str) -> None:
        """Kill a helper with SIGKILL and wait until its successor works."""
        before = self.helper(title)
        before.kill()
        self.replaced(title, before.pid)

    def replaced(self, title: str, before: int) -> None:
        """Wait until the helper with the pid `before` has a successor that works.

        The readiness alone may be a second old, and describe the dead helper.
        """
        until(lambda: before != self.helper(title).pid in self._at_work(), f"another {title}")
        until(self.ready, "the daemon to be ready again")

    def _at_work(self) -> set[int]:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = self.get("/api/system")
            if answer.status == 200:
                return {process["pid"] for process in answer.json()["processes"]}
        return set()

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line to its end."""
        return subprocess.run(
            [*self.client_command(), *arguments, "--config", str(self.config)],
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=120,
        )


def command_lines(processes: Iterable[psutil.Process]) -> dict[psutil.Process, str]:
    """Return the command lines of the processes that still exist."""
    by_process = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            by_process[process] = " ".join(process.cmdline())
    return by_process


def gone(process: psutil.Process) -> bool:
    """Return whether the process has ended; it may still be a zombie."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def shell_program(name: str) -> str:
    """Return a shell command that runs one of tests/programs with this Python; arguments may follow."""
    return shlex.join([sys.executable, "-I", str(PROGRAMS / f"{name}.py")])


def program(name: str, *arguments: object) -> str:
    """Return a TOML list that runs one of tests/programs with this Python."""
    return json.dumps([sys.executable, "-I", str(PROGRAMS / f"{name}.py"), *map(str, arguments)])
