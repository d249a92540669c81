"""Make an archive of formats, as the working tree writes them: python -m tests.golden.record DIRECTORY ARCHIVE.

A real root of the working tree hands over, with runs in many states, to a version that first saves the table and all
files behind it. A scheduler of that version saves the messages of the root. A second daemon leaves a database.
Everything is made below DIRECTORY, which should not exist; its path is in the archive.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.services.test_readiness import SAY, is_ready
from tests.e2e.upgrade.test_upgrade import HALVES, answer, shown
from tests.support.daemon import gone
from tests.support.installation import Installation
from tests.support.paths import PROGRAMS
from tests.support.waiting import until

_SAVE_TABLE = """        if "--resume" in sys.argv:
            import shutil
            whole = os.pread(fd, os.fstat(fd).st_size, 0)
            with open("{place}/handover.json", "wb") as file:
                file.write(whole)
            found = json.loads(whole)
            shutil.copytree(
                found["boot"]["runtime_dir"], "{place}/runtime",
                ignore=lambda _, names: [name for name in names if not name.endswith(".ring") and name != "begun"],
            )
            for run, (record, _) in found["lives"]["records"].items():
                shutil.copyfile(f"/proc/self/fd/{{record}}", f"{place}/record-{{run}}")
"""
_SAVE_MESSAGES = '''

class _Saving:
    """Writes down each message that the root sends."""

    def __init__(self) -> None:
        self._decoder = decoder()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete."""
        found = list(self._decoder.feed(data))
        with open("{place}/frames.jsonl", "ab") as file:
            file.writelines(encode(frame)[4:] + b"\\n" for frame in found)
        return found


class RootConnection:'''
_BEGIN = "        state: Handover = from_json(Handover, read(fd))\n"


class Recorded(Installation):
    """A daemon that hands over to a version that saves the state.

    No service manager receives its notifications, so requests to the descriptor store wait. Its standard error is not
    read, so lines for it wait, too.
    """

    def __init__(self, directory: Path, place: Path) -> None:
        super().__init__(directory)
        self.place = place
        connection = "supervisor/scheduler/loop/root_connection.py"
        self.add(
            "saving",
            {"supervisor/root/handover/inherited_state.py": (_BEGIN, _SAVE_TABLE.format(place=place) + _BEGIN)},
        )
        for old, new in (
            ("\n\nclass RootConnection:", _SAVE_MESSAGES.format(place=place)),
            ("self._decoder = decoder()\n        self._early", "self._decoder = _Saving()\n        self._early"),
        ):
            file = directory / "saving" / connection
            assert file.read_text().count(old) == 1
            file.write_text(file.read_text().replace(old, new))
        shutil.copytree(PROGRAMS, directory / "programs")

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "NOTIFY_SOCKET": str(self.directory / "no-manager")}

    def start_unread(self) -> None:
        """Start it with a full pipe as standard error."""
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.launch(writing)
        until(self.ready, "the daemon to be ready")
        try:
            while True:
                os.write(writing, b"." * 4096)
        except BlockingIOError:
            os.set_blocking(writing, True)
        self.unread = reading, writing

    def program(self, name: str, *arguments: object) -> str:
        return json.dumps(
            [str(self.python), "-I", str(self.directory / "programs" / f"{name}.py"), *map(str, arguments)]
        )

    def script(self, *lines: str) -> str:
        return json.dumps([str(self.python), "-I", "-u", "-c", "\n".join(lines)])


def configure(daemon: Recorded, go: Path) -> None:
    """Write tasks and services for every state of a run that an upgrade finds."""
    (daemon.directory / "secret").write_text("correct-horse-battery")
    (daemon.directory / "secret").chmod(0o600)
    parts = partial(daemon.program, "in_parts")
    wait = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    say = (SAY.format(b"STATUS=warming up"), wait, SAY.format(b"READY=1"))
    service = daemon.script("import os, socket, time", *say, "time.sleep(1000)")
    secret = 'secrets = { P = "${file:secret}" }\n'
    text = f"[services.s]\nrun = {service}\nready = {{ notify = true }}\n"
    for name, (first, second, _) in HALVES.items():
        text += f"[tasks.{name}]\nrun = {parts(go, first, second, 3)}\n"
    text = text.replace("[tasks.terminal]", "[tasks.terminal]\ntty = true") + secret
    stop = 'graceful_stop = "1h"\n'
    late = daemon.directory / "late"
    behind = f"(while [ ! -e {late} ]; do sleep 0.01; done; printf 'one\\\\nhalf, correct-ho'; exec sleep 1000)"
    daemon.write(
        f"{text}"
        f"[tasks.stopped]\nrun = {daemon.program('ignores_term')}\n{stop}"
        f"[tasks.draining]\nrun = {daemon.program('leaves_child', 'deaf')}\n{stop}"
        f'[tasks.left]\nrun = ["/bin/sh", "-c", "{behind} &"]\nleftovers = "leave"\n{secret}'
        f"[tasks.closed]\nrun = {daemon.program('closes_output', daemon.directory / 'closed')}\n"
        f'[tasks.late]\nrun = ["sleep", "1000"]\ntimeout = "1h"\nlimits = {{ nofile = 100 }}\n'
        f'[tasks.unwritten]\nrun = "echo hello"\n'
        f'[tasks.quick]\nrun = "echo hello; exit 3"\n'
        f"[tasks.ended]\nrun = {parts(daemon.directory / 'end', 'one', 'two', 5)}\n"
    )


def record_handover(daemon: Recorded) -> None:
    """Bring the daemon into a state in which it has something of everything to hand over, and upgrade it."""
    go = daemon.directory / "go"
    configure(daemon, go)
    daemon.start_unread()
    (daemon.data / "logs").mkdir(mode=0o700, exist_ok=True)
    (daemon.data / "logs" / "unwritten").write_text("in the way")
    daemon.install("saving")
    daemon.kill_helper("ringward scheduler")
    runs = {name: daemon.trigger(name) for name in (*HALVES, "stopped", "draining", "closed", "late", "ended")}
    for name in HALVES:
        until(partial(shown, daemon, runs[name]), f"the first half of {name}")
    until(lambda: daemon.lines(runs["stopped"]), "its first line")
    until((daemon.directory / "closed").exists, "a run to have closed its output")
    left_running_id, *_ = [daemon.ended(daemon.trigger(name))["id"] for name in ("left", "unwritten", "quick")]
    (daemon.directory / "late").touch()
    until(lambda: "daemon.ring" in daemon.holding(f"left {left_running_id}: one"), "the output of a leftover")
    for name in ("stopped", "draining"):
        daemon.request("POST", f"/api/runs/{runs[name]}/stop")
    child = until(lambda: next(iter(daemon.children("ignores_term")), None), "the child that is left")
    until(lambda: child.ppid() == daemon.pid, "its parent to end")
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()  # so that it acknowledges nothing; the root kills it
    os.kill(daemon.pid, signal.SIGHUP)
    (ended,) = daemon.children(f"in_parts.py {daemon.directory / 'end'}")
    (daemon.directory / "end").touch()
    until(partial(gone, ended), "its end")
    os.kill(daemon.pid, signal.SIGUSR2)
    until(lambda: answer(daemon)["state"] == "done", "the upgrade", 120)
    until(daemon.ready, "the daemon to be ready again")
    go.touch()
    until(lambda: is_ready(daemon), "the service to be ready")
    tasks = {runs["secret"]: "secret", runs["ended"]: "ended"}
    for file in daemon.place.glob("record-*"):
        task = tasks.get(file.name.removeprefix("record-"))
        if task is None:
            file.unlink()
        else:
            file.rename(daemon.place / f"record-{task}")


def record_database(daemon: Installation, place: Path) -> None:
    """Leave a database with runs, a retry, a deleted run, a paused task and a token."""
    daemon.write(
        '[tasks.good]\nrun = "echo hello"\n[tasks.bad]\nrun = "exit 1"\nretry_attempts = 1\nretry_delay = "1ms"\n'
        '[tasks.gone]\nrun = "true"\n[services.web]\nrun = ["sleep", "1000"]\n'
    )
    daemon.start()
    daemon.ended(daemon.trigger("good"))
    daemon.ended(daemon.trigger("bad"))
    until(lambda: [run["status"] for run in daemon.runs("bad")] == ["ended"] * 2, "the retry")
    deleted = daemon.ended(daemon.trigger("gone"))["id"]
    for method, path, body in (
        ("DELETE", f"/api/runs/{deleted}", None),
        ("POST", "/api/tasks/good/pause", None),
        ("POST", "/api/tokens", {"name": "ci", "role": "viewer"}),
    ):
        answered = daemon.request(method, path, body)
        assert answered.status < 300, answered.body
    assert daemon.stop() == 0
    shutil.copy(daemon.data / "ringward.db", place)


def main(directory: Path, archive: Path) -> None:
    place = directory / "archive"
    place.mkdir(parents=True)
    for name, record in (("daemon", record_handover), ("database", partial(record_database, place=place))):
        made: Any = Recorded if name == "daemon" else Installation
        arguments: tuple[Path, ...] = (directory / name, place) if name == "daemon" else (directory / name,)
        (directory / name).mkdir()
        daemon = made(*arguments)
        try:
            call: Callable[[Any], None] = record
            call(daemon)
        finally:
            daemon.clean()
    subprocess.run(["cp", "-a", "--sparse=always", str(place), str(directory / "sparse")], check=True)
    names = ["--sort=name", "--owner=0", "--group=0", "-C", str(directory / "sparse")]
    tar = ["tar", "--sparse", *names, "-c", "."]
    with archive.open("wb") as file, subprocess.Popen(tar, stdout=subprocess.PIPE) as packing:
        subprocess.run(["xz", "-9e"], stdin=packing.stdout, stdout=file, check=True)
    assert packing.returncode == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).absolute())
