"""Readiness and liveness of services, in the whole daemon."""

import json
import os
import pwd
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.daemon import Daemon, command_lines, gone
from tests.support.ports import free_port
from tests.support.waiting import until

QUICK = 'restart_delay = "1ms"\nhealthy_after = "0s"\nrestart_attempts = 1\n'


def instance(daemon: Daemon, name: str = "s", index: int = 0) -> dict[str, Any]:
    instances: list[dict[str, Any]] = until(lambda: daemon.task(name).get("instances"), f"the record of {name}")
    return instances[index]


def is_ready(daemon: Daemon, name: str = "s", index: int = 0) -> bool:
    record = instance(daemon, name, index)
    return bool(record["ready"]) and record["state"] == "running"


def watcher(daemon: Daemon) -> psutil.Process | None:
    return next(iter(daemon.children("ringward watcher", of="ringward scheduler")), None)


def script(*lines: str) -> str:
    """Return a TOML list that runs these lines of Python."""
    return json.dumps([sys.executable, "-I", "-u", "-c", "\n".join(lines)])


def on_flag(flag: Path, *lines: str) -> str:
    """Return a command that runs these lines once the file exists, and then waits."""
    wait = f"while not os.path.exists({str(flag)!r}): time.sleep(0.01)"
    return script("import os, socket, subprocess, sys, time", wait, *lines, "time.sleep(1000)")


SAY = "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto({!r}, '\\0' + os.environ['NOTIFY_SOCKET'][1:])"
HTTP = (
    "import http.server",
    "class H(http.server.BaseHTTPRequestHandler):",
    "    def do_GET(self):",
    "        self.send_response(200 if os.path.exists({flag!r}) else 503)",
    "        self.end_headers()",
    "http.server.HTTPServer(('127.0.0.1', {port}), H).serve_forever()",
)


def cases(flag: Path, port: int) -> dict[str, tuple[str, str]]:
    listen = f"s = socket.create_server(('127.0.0.1', {port}))"
    http = "\n".join(HTTP).format(flag=str(flag), port=port)
    words = (SAY.format(b"STATUS=warming\nREADY=1"), f"open({str(flag) + '.said'!r}, 'w')")
    return {
        "notify": (on_flag(flag, *words), "notify = true"),
        "tcp": (on_flag(flag, listen), f'tcp = "127.0.0.1:{port}"'),
        "http": (script("import os", http), f'http = "http://127.0.0.1:{port}/healthz"'),
        "exec": ('"exec sleep 1000"', f"exec = \"test -e '{flag}' && test $RINGWARD_INSTANCE = 0\""),
        "log": (on_flag(flag, "print('x\\nlistening on 80')"), 'log = "^listening on [0-9]+$"'),
    }


KINDS = ("notify", "tcp", "http", "exec", "log")


def configured(flag: Path, kind: str, more: str, name: str = "s") -> str:
    run, probe = cases(flag, free_port())[kind]
    return f'[services.{name}]\nrun = {run}\nready = {{ {probe}, every = "50ms", {more} }}\n{QUICK}'


@pytest.mark.lent
def test_successful_probe_makes_an_instance_running(daemon: Daemon, tmp_path: Path) -> None:
    """With any kind of probe, an instance is starting until the probe succeeds, even if helpers die; then it runs."""
    flags = {kind: tmp_path / kind for kind in KINDS}
    daemon.write("".join(configured(flags[kind], kind, 'timeout = "1h"', kind) for kind in KINDS))
    daemon.start()
    for kind in KINDS:
        until(lambda kind=kind: [run["status"] for run in daemon.runs(kind)] == ["running"], f"the process of {kind}")  # type: ignore[misc]

    def all_wait() -> bool:
        instances_found = [instance(daemon, kind) for kind in KINDS]
        return [(instance_found["state"], instance_found["ready"]) for instance_found in instances_found] == [
            ("starting", False)
        ] * len(KINDS)

    assert all_wait()
    first = until(lambda: watcher(daemon), "the watcher")
    first.kill()
    until(lambda: (watcher(daemon) or first).pid != first.pid, "another watcher")
    daemon.kill_helper("ringward scheduler")
    assert all_wait()
    for kind, flag in flags.items():
        flag.touch()
        until(lambda kind=kind: is_ready(daemon, kind), f"readiness of {kind}")  # type: ignore[misc]
    assert [len(daemon.runs(kind)) for kind in KINDS] == [1] * len(KINDS)
    for flag in flags.values():
        flag.unlink()
    daemon.kill_helper("ringward scheduler")
    assert [kind for kind in KINDS if not is_ready(daemon, kind)] == []


@pytest.mark.lent
def test_unready_instance_is_stopped(daemon: Daemon, tmp_path: Path) -> None:
    """An instance that is not ready in time is stopped as a quick failure; its log names the failed check."""
    daemon.write("".join(configured(tmp_path / kind, kind, 'timeout = "200ms"', kind) for kind in KINDS))
    daemon.start()
    for kind in KINDS:
        until(lambda kind=kind: daemon.task(kind)["state"] == "fatal", f"{kind} to be fatal")  # type: ignore[misc]
        runs = daemon.runs(kind)
        assert [run["endReason"] for run in runs] == ["failed"] * 2, kind
        (line,) = [text for text in daemon.texts(runs[0]["id"], "system") if "not ready within 200ms" in text]
        assert line.endswith(": stopping"), kind
        assert not daemon.task(kind)["instances"][0]["ready"], kind


@pytest.mark.lent
def test_sd_notify_survives_a_killed_scheduler(daemon: Daemon, tmp_path: Path) -> None:
    """An sd_notify message is kept until a scheduler runs."""
    flag = tmp_path / "flag"
    daemon.write(configured(flag, "notify", 'timeout = "1h"'))
    daemon.start()
    until(lambda: daemon.runs("s") and daemon.runs("s")[0]["status"] == "running", "its process")
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    flag.touch()
    until(lambda: Path(f"{flag}.said").exists(), "its words")
    scheduler.kill()
    until(lambda: is_ready(daemon), "readiness")
    until(lambda: instance(daemon).get("detail") == "warming", "its status")


@pytest.mark.lent
def test_only_processes_of_the_run_may_notify(daemon: Daemon, tmp_path: Path) -> None:
    """A grandchild in its own session may send READY; a foreign process may not, however often it tries."""
    flag = tmp_path / "flag"
    grandchild = f"import os, socket, time; {SAY.format(b'READY=1')}; time.sleep(1000)"
    spawn = f"subprocess.run(['sh', '-c', 'setsid \"$0\" -I -c \"$1\"; :', sys.executable, {grandchild!r}])"
    daemon.write(f'[services.s]\nrun = {on_flag(flag, spawn)}\nready = {{ notify = true, timeout = "1h" }}\n')
    daemon.start()
    until(lambda: daemon.runs("s") and daemon.runs("s")[0]["status"] == "running", "its process")
    run = daemon.runs("s")[0]["id"]
    identity = (daemon.data / "id").read_text().strip()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.setblocking(False)
        sent = 0
        while sent < 500:
            try:
                stranger.sendto(b"READY=1\nSTATUS=from a stranger", f"\0ringward/{identity}/{run}")
                sent += 1
            except BlockingIOError:  # the queue is full; it is read in its own time
                assert daemon.task("s")["state"] == "starting"
    flag.touch()
    until(lambda: is_ready(daemon), "readiness")
    assert "detail" not in instance(daemon)


@pytest.mark.lent
def test_flood_of_sd_notify_messages_is_harmless(daemon: Daemon) -> None:
    """During a flood, commands are answered, another service starts, and the last message counts."""
    flood = (
        "import os, socket, time",
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "s.connect('\\0' + os.environ['NOTIFY_SOCKET'][1:])",
        "for n in range(2000): s.send(b'READY=1\\nSTATUS=word %d' % n)",
        "time.sleep(1000)",
    )
    daemon.write(
        f"[services.s]\nrun = {script(*flood)}\nready = {{ notify = true }}\n"
        '[services.other]\nrun = "exec sleep 1000"\nautostart = false\n'
    )
    daemon.start()
    until(lambda: is_ready(daemon), "readiness")
    assert daemon.request("POST", "/api/tasks/other/start").status == 204
    until(lambda: daemon.task("other")["state"] == "running", "the other one")
    until(lambda: instance(daemon).get("detail") == "word 1999", "its last word")


@pytest.mark.lent
def test_rolling_restart_waits_for_readiness(daemon: Daemon, tmp_path: Path) -> None:
    """Each instance restarts once the previous one is ready; the first that does not become ready ends the restart."""
    broken = tmp_path / "broken"
    daemon.write(
        '[services.s]\nrun = "exec sleep 1000"\ninstances = 3\nrestart_attempts = 0\n'
        f'ready = {{ exec = "test $RINGWARD_INSTANCE = 0 || test ! -e \'{broken}\'", every = "50ms",'
        ' timeout = "15s" }\n'
    )
    daemon.start()
    until(lambda: all(is_ready(daemon, "s", n) for n in range(3)), "all three")
    before = [instance(daemon, "s", n)["runId"] for n in range(3)]
    assert daemon.request("POST", "/api/tasks/s/restart?rolling=true").status == 204
    until(lambda: "rolling" not in daemon.task("s"), "the rolling restart")
    after = [instance(daemon, "s", n)["runId"] for n in range(3)]
    assert all(is_ready(daemon, "s", n) for n in range(3))
    assert not set(before) & set(after)
    broken.touch()
    assert daemon.request("POST", "/api/tasks/s/restart?rolling=true").status == 204
    until(lambda: instance(daemon, "s", 1)["state"] == "fatal", "the second one")
    assert "rolling" not in daemon.task("s")
    assert is_ready(daemon, "s", 0)
    assert instance(daemon, "s", 2)["runId"] == after[2]


def test_probes_run_beside_hanging_ones(daemon: Daemon) -> None:
    """Sixty-four instances become ready although many other probes never answer."""
    port = free_port()
    serve = ("import socket, time", f"s = socket.create_server(('127.0.0.1', {port}))", "time.sleep(1000)")
    daemon.write(
        f'[services.deaf]\nrun = "exec sleep 1000"\ninstances = 32\nready = {{ exec = "sleep 1000", timeout = "1h" }}\n'
        '[services.s]\nrun = "exec sleep 1000"\ninstances = 64\n'
        'ready = { exec = "exit 0", timeout = "1h" }\n'
        f'[services.one]\nrun = {script(*serve)}\nready = {{ tcp = "127.0.0.1:{port}" }}\n'
    )
    daemon.start()
    until(lambda: is_ready(daemon, "one"), "the one", 120)
    until(lambda: all(is_ready(daemon, "s", index) for index in range(64)), "all of them", 120)
    children = psutil.Process(daemon.pid).children(recursive=True)
    assert daemon.stop() == 0
    assert all(map(gone, children))


@pytest.mark.lent
def test_probe_command_leaves_no_process(daemon: Daemon) -> None:
    """A probe command runs as the configured user.

    Processes that it started, even in other sessions, end with the attempt.
    """
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    leave = "(setsid sh -c 'echo up; exec sleep 100000' &) | grep -q up"
    daemon.write(
        f'[services.s]\nrun = "exec sleep 1000"\nuser = "{user}"\n'
        f'ready = {{ exec = "{leave} && test $(id -un) = {user}", every = "50ms", timeout = "1h" }}\n'
    )
    daemon.start()
    until(lambda: is_ready(daemon), "readiness")
    until(
        lambda: not any("100000" in line for line in command_lines(daemon.family()).values()), "the end of all it left"
    )


def alive(flag: Path, port: int) -> dict[str, tuple[str, str]]:
    """Return a service and its probe for each kind; the probes succeed as long as the flag exists."""
    feed = "\n".join(("import os, socket, time", f"while os.path.exists({str(flag)!r}):", "    time.sleep(0.05)"))
    feed += f"\n    {SAY.format(b'WATCHDOG=1')}\ntime.sleep(1000)"
    serve = f"s = socket.create_server(('127.0.0.1', {port}))\nwhile os.path.exists({str(flag)!r}): time.sleep(0.01)"
    return {
        "notify": (script(feed), "notify = true"),
        "tcp": (script("import os, socket, time", serve, "s.close()", "time.sleep(1000)"), f'tcp = "127.0.0.1:{port}"'),
        "http": (
            script("import os", "\n".join(HTTP).format(flag=str(flag), port=port)),
            f'http = "http://127.0.0.1:{port}/"',
        ),
        "exec": ('"exec sleep 1000"', f'exec = ["test", "-e", "{flag}"]'),
    }


LIVE_KINDS = ("notify", "tcp", "http", "exec")


@pytest.mark.lent
def test_failed_liveness_restarts_the_instance(daemon: Daemon, tmp_path: Path) -> None:
    """After the configured number of failed checks an instance restarts.

    Its run has failed, and its log names the cause.
    """
    flag = tmp_path / "flag"
    flag.touch()
    text = ""
    for kind in LIVE_KINDS:
        run, probe = alive(flag, free_port())[kind]
        text += f'[services.{kind}]\nrun = {run}\nlive = {{ {probe}, every = "1500ms", failures = 6 }}\n'
        text += 'restart_delay = "1h"\n'
    daemon.write(text)
    daemon.start()
    for kind in LIVE_KINDS:
        until(lambda kind=kind: instance(daemon, kind)["state"] == "running", f"the process of {kind}")  # type: ignore[misc]
    daemon.kill_helper("ringward scheduler")
    flag.unlink()
    for kind in LIVE_KINDS:
        until(lambda kind=kind: daemon.runs(kind)[0]["status"] == "ended", f"the end of {kind}")  # type: ignore[misc]
        (run_record,) = daemon.runs(kind)
        assert run_record["endReason"] == "failed", kind
        (said,) = [line for line in daemon.texts(run_record["id"], "system") if "not alive" in line]
        assert ("no WATCHDOG=1 for 9s" if kind == "notify" else "6 times in a row") in said
        assert instance(daemon, kind)["state"] == "backoff", kind


@pytest.mark.lent
def test_service_that_stops_by_itself(daemon: Daemon) -> None:
    """A service may take longer than its watchdog after STOPPING=1, even if the scheduler is replaced meanwhile."""
    lines = ("import os, socket, time", f"{SAY.format(b'STOPPING=1')}", "time.sleep(2)")
    live = 'live = { notify = true, every = "1s", failures = 1 }\ngraceful_stop = "1h"\nrestart = "never"\n'
    daemon.write(f"[services.s]\nrun = {script(*lines)}\n{live}")
    daemon.start()
    until(lambda: instance(daemon).get("detail") == "stopping", "its words")
    daemon.helper("ringward scheduler").kill()
    until(lambda: instance(daemon)["state"] == "exited", "its end")
    assert [run["endReason"] for run in daemon.runs("s")] == ["succeeded"]
