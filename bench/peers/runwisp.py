"""RunWisp: the same HTTP API as Ringward, so the same client drives it; authentication is off."""

import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing

from bench.client import Client, Failed, flood
from bench.logs.ingest import Source
from bench.logs.streams import first_line, ticks
from bench.peers.peer import DEADLINE_S, Lost, Peer, Program
from bench.runs.short_runs import CONNECTIONS
from bench.runs.short_runs import DEADLINE_S as RUNS_DEADLINE_S

_LOOK_S = 0.005
_PROGRAM = """\
[{kind}.{name}]
run = {command}
log_max_size = "4gb"
"""
_TASK = "max_concurrent = 50\nmax_queued = 10000\nkeep_runs = 100000\n"
_SERVICE = 'restart_delay = "1s"\n'
_KEEN_SERVICE = 'restart_delay = "1ms"\nrestart_backoff = "constant"\nrestart_attempts = 100\n'


class RunWisp(Peer):
    """The daemon with its own configuration and data; it restarts services after its default delay of 1 s."""

    name = "runwisp"
    program = "runwisp"
    install = "npm install @runwisp/linux-x64, and its directory in BENCH_PEERS"
    _service = _SERVICE

    def __init__(self, executable: str, programs: Sequence[Program], *, start: bool = True) -> None:
        super().__init__(executable, programs, start=start)
        self.environment |= {"RUNWISP_AUTH": "off"}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self._runs: dict[str, str] = {}
        parts = ["[daemon]\ncheck_updates = false\n"]  # it would ask the network
        for program in self.programs:
            kind = "services" if program.service else "tasks"
            command = json.dumps(shlex.join(program.argv))
            parts.append(_PROGRAM.format(kind=kind, name=program.name, command=command))
            parts.append(self._service if program.service else _TASK)
        (self.directory / "runwisp.toml").write_text("".join(parts))

    @classmethod
    def keen(cls) -> type[Peer]:
        """Return RunWisp with its shortest restart delay."""
        return _Keen

    def launch(self) -> None:
        config, data = self.directory / "runwisp.toml", self.directory / "data"
        self._process = self.execute("daemon", "-c", str(config), "--data", str(data), "--port", str(self._port))

    @property
    def pid(self) -> int:
        if self._process is None or self._process.poll() is not None:
            raise Failed("runwisp does not run")
        return self._process.pid

    def client(self) -> Client:
        """Return a new connection to its API."""
        return Client(self._port, "")

    @property
    def _api(self) -> Client:
        if self._client is None:
            self._client = self.client()
        return self._client

    def ask(self) -> None:
        try:
            self._api.get("/api/daemon")
        except (OSError, Failed):
            self.close()
            raise

    def running(self) -> int:
        total: int = self._api.get("/api/runs?limit=1&status=running")["total"]
        return total

    def send_start(self, name: str) -> None:
        self._api.send("POST", f"/api/tasks/{name}/run")
        self._name = name

    def started(self) -> None:
        status, body = self._api.answer()
        if status != 201:
            raise Failed(f"runwisp: {status} {body.decode(errors='replace')}")
        self._runs[self._name] = json.loads(body)["id"]

    def rest(self, name: str) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while self._api.get(f"/api/runs/{self._runs[name]}")["status"] != "ended":
            if time.monotonic() > deadline_s:
                raise Failed(f"runwisp: {name} does not end")
            time.sleep(_LOOK_S)

    def flood(self, names: Sequence[str], source: Source, _size_bytes: int) -> float:
        start_s = time.monotonic()
        for name in names:
            self.start(name)
        for name in names:
            self.rest(name)
            page = self._api.get(f"/api/runs/{self._runs[name]}/log?from=-1&limit=1")
            if page["totalLines"] != source.lines or page["lines"][-1]["text"] != source.last:
                raise Lost(f"runwisp: {page['totalLines']} of {source.lines} lines in the log of {name}")
        return time.monotonic() - start_s

    def first_lines(self, _name: str, count: int) -> list[float]:
        times = self._until_failure(count) or self._until_failure(count)
        if not times:
            raise Failed("runwisp: no stream has a line")
        return times

    def _until_failure(self, count: int) -> list[float]:
        """Return the times of `count` runs. About one stream in 500 has no line, nor has any later one: restart."""
        times: list[float] = []
        with closing(self.client()) as trigger, closing(self.client()) as stream:
            stream.get("/api/daemon")
            try:
                times += (first_line(trigger, stream) for _ in range(count))
            except Failed as err:
                print(f"runwisp restarts after {len(times)} of {count} runs: {err}", file=sys.stderr)
            else:
                return times
        self.stop()
        self.close()
        self.launch()
        self.wait_answer()
        return times

    def ticks(self, _name: str, count: int) -> list[float]:
        with closing(self.client()) as client:
            return ticks(client, count)

    def short_runs(self, name: str, count: int) -> float:
        clients = [self.client() for _ in range(CONNECTIONS)]
        try:
            done = self._ended(name) + count
            start_s = time.monotonic()
            flood(clients, "POST", f"/api/tasks/{name}/run", count)
            while self._ended(name) < done:
                if time.monotonic() - start_s > RUNS_DEADLINE_S:
                    raise Failed("not all runs ended")
                time.sleep(0.02)
            return count / (time.monotonic() - start_s)
        finally:
            for client in clients:
                client.close()

    def _ended(self, name: str) -> int:
        total: int = self._api.get(f"/api/runs?limit=1&taskName={name}&status=ended")["total"]
        return total

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class _Keen(RunWisp):
    _service = _KEEN_SERVICE
