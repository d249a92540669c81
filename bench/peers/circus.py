"""circus: JSON over ZeroMQ, through a Unix socket."""

import json
import shlex
import subprocess
import time
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from bench.client import Failed
from bench.peers.peer import DEADLINE_S, Peer, Program
from bench.peers.zmtp import Dealer

_LOOK_S = 0.005
_NEVER_S = 3600.0
_COMMON = """\
[circus]
endpoint = ipc://{directory}/socket
pubsub_endpoint = ipc://{directory}/pubsub
check_delay = {check_s:g}
"""
_WATCHER = """\
[watcher:{name}]
cmd = {command}
autostart = {service}
respawn = {service}
copy_env = true
stdout_stream.class = FileStream
stdout_stream.filename = {log}
"""


class Circus(Peer):
    """circus, checking every 5 s which programs have ended, which is its default.

    Without services it checks rarely: no program has to be restarted, and it refuses every request during a check.
    """

    name = "circus"
    program = "circusd"
    install = "pip install circus"
    check_s: ClassVar[float] = 5.0

    @classmethod
    def keen(cls) -> type[Peer]:
        return KeenCircus

    def __init__(self, executable: str, programs: Sequence[Program], *, start: bool = True) -> None:
        super().__init__(executable, programs, start=start)
        self._process: subprocess.Popen[bytes] | None = None
        self._dealer: Dealer | None = None
        self._question = ""
        check_s = self.check_s if any(program.service for program in programs) else _NEVER_S
        parts = [_COMMON.format(directory=self.directory, check_s=check_s)]
        for program in self.programs:
            command, service = shlex.join(program.argv), str(program.service).lower()
            parts.append(
                _WATCHER.format(name=program.name, command=command, service=service, log=self.log(program.name))
            )
        (self.directory / "circus.ini").write_text("".join(parts))

    def launch(self) -> None:
        self._process = self.execute(str(self.directory / "circus.ini"))

    @property
    def pid(self) -> int:
        if self._process is None or self._process.poll() is not None:
            raise Failed("circusd does not run")
        return self._process.pid

    def _send(self, command: str, **properties: Any) -> None:
        if self._dealer is None:
            self._dealer = Dealer(f"{self.directory}/socket", DEADLINE_S)
        self._question = uuid.uuid4().hex
        self._dealer.send(json.dumps({"id": self._question, "command": command, "properties": properties}).encode())

    def _answer(self) -> dict[str, Any]:
        assert self._dealer is not None
        found: dict[str, Any] = json.loads(self._dealer.receive())
        if found.get("id") != self._question or found.get("status") == "error":
            raise Failed(f"circus: {found}")
        return found

    def _call(self, command: str, **properties: Any) -> dict[str, Any]:
        self._send(command, **properties)
        return self._answer()

    def ask(self) -> None:
        self._call("status")

    def running(self) -> int:
        found: int = self._call("numprocesses")["numprocesses"]
        return found

    def send_start(self, name: str) -> None:
        self._send("start", name=name, waiting=True)

    def started(self) -> None:
        self._answer()

    def rest(self, name: str) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                self._call("stop", name=name, waiting=True)
                return
            except Failed:  # it refuses requests during a start
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(_LOOK_S)

    def close(self) -> None:
        if self._dealer is not None:
            self._dealer.close()


class KeenCircus(Circus):
    """circus, checking every 10 ms."""

    check_s = 0.01
