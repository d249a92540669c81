"""A shell on a terminal beside a daemon, as a reader of the documentation has them."""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from tests.docs.blocks import Block, Command
from tests.docs.matching import Ids, ids_of
from tests.support.daemon import RINGWARD
from tests.support.lent import Lent
from tests.support.receivers import web_server
from tests.support.waiting import until

CONFIG = "ringward.toml"
OWN_TABLE = '[daemon]\ndata_dir = "data"\n'
"""Settings of the daemon in addition to the page's."""
_LONGEST_S = 60.0
_COLUMNS = 500
_LOOP = r"""
status=0
back() { return "$1"; }
while IFS= read -r -d '' command; do
    back "$status"
    eval "$command" </dev/null
    status=$?
    printf '\0%d\0' "$status"
done
"""


def unscheduled(config: str) -> str:
    """Return the configuration with schedules that are not due during the session."""
    return re.sub(r"^cron = .*$", 'cron = "0 0 1 1 *"', config, flags=re.MULTILINE)


class Shown(Lent):
    """The daemon of all pages, which generates its password."""

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RINGWARD_")}
        return {**inherited, "LC_ALL": "C"}

    def begin(self, text: str, scripts: Path) -> None:
        """Start with a configuration and the scripts beside it."""
        self._give_up()
        shutil.copytree(scripts, self.directory / scripts.name, ignore=shutil.ignore_patterns("__pycache__"))
        self.write(text)
        self.start()

    def start(self) -> Self:
        """Start the daemon, and wait until its services run and have printed, and its start tasks have ended."""
        super().start()
        until(lambda: all(map(self._is_stable, self.get("/api/tasks").json()["items"])), "what begins with it")
        return self

    def _is_stable(self, unit: dict[str, Any]) -> bool:
        if unit["kind"] == "task":
            return not any(unit["active"].values())
        prints = re.search(r"\b(echo|date)\b", str(unit["definition"]["run"]))
        return unit["state"] == "running" and all(not prints or self.texts(one["runId"]) for one in unit["instances"])

    @property
    def address(self) -> str:
        """The address of the daemon."""
        match = re.search(r'listen = \["([^"]+)"', self.config.read_text())
        assert match is not None
        return match[1]


class Shell:
    """A bash whose commands print to a terminal and have no input."""

    def __init__(self, directory: Path) -> None:
        self._terminal, end = pty.openpty()
        modes = termios.tcgetattr(end)
        modes[1] &= ~termios.OPOST
        termios.tcsetattr(end, termios.TCSANOW, modes)
        termios.tcsetwinsize(end, (50, _COLUMNS))
        self._process = subprocess.Popen(
            # A process in the background of a script ignores SIGINT, and so would all that it starts.
            ["env", "--default-signal=INT", "bash", "--norc", "--noprofile", "-c", _LOOP],
            stdin=subprocess.PIPE,
            stdout=end,
            stderr=end,
            cwd=directory,
            env={
                "PATH": f"{RINGWARD.parent}:{os.environ['PATH']}",
                "HOME": str(directory),
                "LANG": "C.UTF-8",
                "TERM": "xterm",
                "NO_COLOR": "1",
            },
            start_new_session=True,
        )
        os.close(end)

    def run(self, text: str, enough: Callable[[str], bool]) -> tuple[str, int | None]:
        """Return output and exit status of a command; it is interrupted, without a status, if its output is enough."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\0")
        self._process.stdin.flush()
        data, interrupted, end_s = b"", False, time.monotonic() + _LONGEST_S
        while data.count(b"\0") < 2:  # one write may arrive in parts
            waited = select.select([self._terminal], [], [], max(end_s - time.monotonic(), 0))
            assert waited[0], self._stuck(text, data, interrupted=interrupted)
            data += os.read(self._terminal, 65536)
            if not interrupted and b"\0" not in data and enough(data.decode(errors="replace")):
                interrupted = True
                for child in psutil.Process(self._process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.send_signal(signal.SIGINT)
        output, status, _ = data.rsplit(b"\0", 2)
        return output.decode(errors="replace"), None if interrupted else int(status)

    def _stuck(self, text: str, data: bytes, *, interrupted: bool) -> str:
        children = psutil.Process(self._process.pid).children(recursive=True)
        signals = [Path(f"/proc/{child.pid}/status").read_text().partition("SigQ")[2] for child in children]
        after = " and an interrupt" if interrupted else ""
        return f"{text} goes on after {_LONGEST_S} s{after}, having printed:\n{data.decode()}\n{children}\n{signals}"

    def close(self) -> None:
        """End the shell and its commands."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.communicate()
        os.close(self._terminal)


class Session:
    """The actions of a reader of one page, block by block."""

    def __init__(self, daemon: Shown, ports: Mapping[str, int]) -> None:
        """Start a session; `ports` maps the page's ports to the real ones."""
        self._daemon = daemon
        self._ids = Ids()
        shutil.rmtree(daemon.directory / "backups", ignore_errors=True)
        (daemon.directory / "backups").mkdir()
        self._shell = Shell(daemon.directory)
        self._ports = ports
        self._receiver = web_server()
        self._phone = f"json://127.0.0.1:{self._receiver.__enter__().port}"

    def close(self) -> None:
        """End the shell."""
        self._shell.close()
        self._receiver.__exit__(None, None, None)

    def has(self, name: str, text: str) -> None:
        """Create a file; the daemon starts with a new configuration at once."""
        path = self._daemon.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == CONFIG:
            self._daemon.write(self._inward(unscheduled(text.replace(OWN_TABLE, "", 1))))
            self._daemon.start()
        else:
            path.write_text(self._inward(text))

    def adds(self, name: str, text: str) -> None:
        """Append to a file; it takes effect only by a command of the page."""
        with (self._daemon.directory / name).open("a") as file:
            file.write(self._inward(f"\n{text}\n"))

    def wrong(self, block: Block) -> Iterator[str]:
        """Run the commands of a block; yield a text for each difference from the page."""
        for command in block.commands():
            output, status = self.outcome(command)
            if status not in (command.status, None):
                yield f"$ {command.text}\nends with {status}, not {command.status}:\n{output}"
            elif command.output and not self._ids.matches(command.output, output):
                shown = "\n".join(command.output)
                yield f"$ {command.text}\nshall print:\n{shown}\nprints:\n{output}"

    def outcome(self, command: Command) -> tuple[str, int | None]:
        """Return the output of a command, with the page's names, and its exit status."""
        self._learn(command.text)

        def enough(output: str) -> bool:
            return self._ids.begins(command.output, self._outward(output))

        output, status = self._shell.run(self._inward(command.text), enough)
        return self._outward(output), status

    def _learn(self, text: str) -> None:
        """Map ids that the page has not shown in an output to the newest ended runs."""
        new = [name for name in ids_of(text) if name not in self._ids.real]
        if new:
            answer = self._daemon.get("/api/runs?status=ended&naming=camel&limit=100").json()
            used_ids = self._ids.real.values()
            ended = [run["id"] for run in answer["runs"] if run["id"] not in used_ids]
            self._ids.real.update(zip(new, ended, strict=False))

    def _places(self) -> list[tuple[str, str]]:
        """Return names on pages and their real values, longer names first."""
        daemon = self._daemon
        return [
            ("examples/data/ringward.sock", daemon.socket),
            ("/var/lib/ringward/ringward.sock", daemon.socket),
            ("/var/lib/ringward", str(daemon.data)),
            ("/var/backups", str(daemon.directory / "backups")),
            ("/etc/ringward", str(daemon.directory)),
            ("127.0.0.1:7464", daemon.address),
            ("ntfys://ntfy.sh/ringward-v7Qk2xTfYw", self._phone),
            *((shown, str(port)) for shown, port in self._ports.items()),
        ]

    def _inward(self, text: str) -> str:
        for shown, real in self._places():
            text = text.replace(shown, real)
        for shown, real in self._ids.real.items():
            text = text.replace(shown, real)
        return text

    def _outward(self, text: str) -> str:
        for shown, real in self._places():
            text = text.replace(real, shown)
        return text
