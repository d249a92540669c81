"""supervisord: XML-RPC over a Unix socket."""

import http.client
import shlex
import socket
import subprocess
import time
import xmlrpc.client
from collections.abc import Sequence
from typing import Any
from xml.parsers.expat import ExpatError

from bench.client import Failed
from bench.peers.peer import DEADLINE_S, Peer, Program

_LOOK_S = 0.005
_COMMON = """\
[supervisord]
nodaemon = true
logfile = {directory}/supervisord.log
pidfile = {directory}/supervisord.pid
childlogdir = {directory}
[unix_http_server]
file = {directory}/socket
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""
_PROGRAM = """\
[program:{name}]
command = {command}
autostart = {service}
autorestart = {service}
startsecs = 0
redirect_stderr = true
stdout_logfile = {log}
stdout_logfile_maxbytes = 0
"""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self._path)


class Supervisord(Peer):
    """supervisord with ``startsecs = 0``, so a started program counts as running, and logs without a limit."""

    name = "supervisord"
    program = "supervisord"
    install = "pip install supervisor 'setuptools<81'"

    def __init__(self, executable: str, programs: Sequence[Program], *, start: bool = True) -> None:
        super().__init__(executable, programs, start=start)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection = _Connection(f"{self.directory}/socket")
        parts = [_COMMON.format(directory=self.directory)]
        for program in self.programs:
            command, service = shlex.join(program.argv).replace("%", "%%"), str(program.service).lower()
            parts.append(
                _PROGRAM.format(name=program.name, command=command, service=service, log=self.log(program.name))
            )
        (self.directory / "supervisord.conf").write_text("".join(parts))

    def launch(self) -> None:
        self._process = self.execute("--configuration", str(self.directory / "supervisord.conf"))

    @property
    def pid(self) -> int:
        if self._process is None or self._process.poll() is not None:
            raise Failed("supervisord does not run")
        return self._process.pid

    def _send(self, method: str, *arguments: Any) -> None:
        body = xmlrpc.client.dumps(arguments, f"supervisor.{method}")
        try:
            self._connection.request("POST", "/RPC2", body, {"Content-Type": "text/xml"})
        except OSError:
            self._connection.close()
            raise

    def _answer(self) -> Any:
        try:
            with self._connection.getresponse() as response:
                (found,), _ = xmlrpc.client.loads(response.read().decode())
        except (http.client.HTTPException, OSError, xmlrpc.client.Error, ExpatError) as err:
            self._connection.close()
            raise Failed(f"supervisord: {err}") from err
        return found

    def _call(self, method: str, *arguments: Any) -> Any:
        self._send(method, *arguments)
        return self._answer()

    def ask(self) -> None:
        self._call("getState")

    def running(self) -> int:
        return sum(one["statename"] == "RUNNING" for one in self._call("getAllProcessInfo"))

    def send_start(self, name: str) -> None:
        wait = False
        self._send("startProcess", name, wait)

    def started(self) -> None:
        self._answer()

    def close(self) -> None:
        self._connection.close()

    def rest(self, name: str) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while self._call("getProcessInfo", name)["statename"] != "EXITED":
            if time.monotonic() > deadline_s:
                raise Failed(f"supervisord: {name} does not end")
            time.sleep(_LOOK_S)
