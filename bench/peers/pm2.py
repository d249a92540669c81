"""pm2: requests go to its daemon over the Unix socket that its command line uses; its logs are files.

The protocol is AMP 1 (of the npm package amp-message) with a call in JSON::

    message    version << 4 | number of arguments, then for each its length (4 bytes, big-endian) and itself
    argument   "j:" and JSON, or "s:" and text
    call       {"type": "call", "method": ..., "args": [...]} and an id; answered by {"args": [...]} or {"error": ...}
"""

import json
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import psutil

from bench.client import Failed
from bench.peers.peer import DEADLINE_S, Peer, Program

_LOOK_S = 0.005


class _Rpc:
    def __init__(self, path: str) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        try:
            self._sock.settimeout(DEADLINE_S)
            self._sock.connect(path)
        except BaseException:
            self._sock.close()
            raise
        self._count = 0

    def _read(self, size_bytes: int) -> bytes:
        parts = []
        while size_bytes:
            part = self._sock.recv(size_bytes)
            if not part:
                raise Failed("pm2 hung up")
            parts.append(part)
            size_bytes -= len(part)
        return b"".join(parts)

    def send(self, method: str, arguments: tuple[Any, ...]) -> None:
        self._count += 1
        call = json.dumps({"type": "call", "method": method, "args": arguments})
        words = (f"j:{call}".encode(), f"s:bench:{self._count}".encode())
        sized = (len(word).to_bytes(4, "big") + word for word in words)
        self._sock.sendall(bytes([1 << 4 | len(words)]) + b"".join(sized))

    def answer(self) -> Any:
        (head,) = self._read(1)
        words = [self._read(int.from_bytes(self._read(4), "big")) for _ in range(head & 15)]
        if words[-1] != f"s:bench:{self._count}".encode():
            raise Failed("pm2 answers another question")
        found = json.loads(words[0].removeprefix(b"j:"))
        if "error" in found:
            raise Failed(f"pm2: {found['error']}")
        return found["args"][0]

    def close(self) -> None:
        self._sock.close()


class Pm2(Peer):
    """The daemon with its own PM2_HOME; it restarts programs at once and always."""

    name = "pm2"
    program = "pm2"
    install = "npm install pm2"

    def __init__(self, executable: str, programs: Sequence[Program], *, start: bool = True) -> None:
        super().__init__(executable, programs, start=start)
        home = self.directory / "home"
        home.mkdir()
        (home / "touch").touch()  # without it and the second variable, pm2 checks for a newer version over the network
        self.environment |= {"PM2_HOME": str(home), "PM2_DISABLE_VERSION_CHECK": "true", "PM2_NO_INTERACTION": "true"}
        self._home = home
        self._command: subprocess.Popen[bytes] | None = None
        self._rpc: _Rpc | None = None
        self._ids: dict[str, int] = {}

    def launch(self) -> None:
        """Start the daemon with ``pm2 ping``; any command would do that."""
        self._command = self.execute("ping")

    def load(self) -> None:
        self._wait(self._command)
        apps = [
            {
                "name": program.name,
                "script": program.argv[0],
                "args": program.argv[1:],
                "interpreter": "none",
                "autostart": program.service,
                "autorestart": program.service,
                "min_uptime": 0,
                "max_restarts": 1_000_000,
                "out_file": str(self.log(program.name)),
                "error_file": "/dev/null",
                "merge_logs": True,
                "vizion": False,
            }
            for program in self.programs
        ]
        path = self.directory / "ecosystem.json"
        path.write_text(json.dumps({"apps": apps}))
        self._wait(self.execute("start", str(path)))
        self._ids = {one["name"]: one["pm_id"] for one in self._call("getMonitorData", {})}

    def _wait(self, command: subprocess.Popen[bytes] | None) -> None:
        assert command is not None
        try:
            status = command.wait(DEADLINE_S)
        except subprocess.TimeoutExpired as err:
            raise Failed("pm2 does not end") from err
        if status:
            raise Failed(f"pm2: exit status {status}")

    @property
    def pid(self) -> int:
        try:
            pid = int((self._home / "pm2.pid").read_text())
            if self.owns(psutil.Process(pid)):
                return pid
        except (FileNotFoundError, ValueError, psutil.Error) as err:  # pm2 creates the file first, then writes it
            raise Failed("pm2 does not run") from err
        raise Failed("pm2 does not run, and its process id is another one's")

    def _send(self, method: str, *arguments: Any) -> None:
        if self._rpc is None:
            self._rpc = _Rpc(str(self._home / "rpc.sock"))
        self._rpc.send(method, arguments)

    def _answer(self) -> Any:
        assert self._rpc is not None
        return self._rpc.answer()

    def _call(self, method: str, *arguments: Any) -> Any:
        self._send(method, *arguments)
        return self._answer()

    def ask(self) -> None:
        self._call("ping", {})

    def running(self) -> int:
        return sum(one["pm2_env"]["status"] == "online" for one in self._call("getMonitorData", {}))

    def send_start(self, name: str) -> None:
        started = {"current_conf": {"autostart": True}}  # otherwise pm2 reports success and starts nothing
        self._send("restartProcessId", {"id": self._ids[name], "env": started})

    def started(self) -> None:
        self._answer()

    def rest(self, name: str) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while self._status(name) != "stopped":
            if time.monotonic() > deadline_s:
                raise Failed(f"pm2: {name} does not end")
            time.sleep(_LOOK_S)

    def _status(self, name: str) -> str:
        (found,) = [one["pm2_env"]["status"] for one in self._call("getMonitorData", {}) if one["name"] == name]
        return str(found)

    def close(self) -> None:
        if self._rpc is not None:
            self._rpc.close()
