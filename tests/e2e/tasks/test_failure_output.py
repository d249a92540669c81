"""Output that makes a run a failure."""

from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import until

pytestmark = pytest.mark.lent

PATTERN = 'failure_output = "^(ERROR|fatal):"\n'


def test_matching_line_makes_the_run_fail(daemon: Daemon) -> None:
    """A matching line fails the run whatever its exit code; other lines, and the daemon's own, do not."""
    daemon.write(
        f'[tasks.bad]\nrun = "echo fine; echo fatal: no disk; echo more"\n{PATTERN}'
        f'[tasks.late]\nrun = "seq 1 200000; printf ERROR:"\n{PATTERN}'
        f'[tasks.good]\nrun = "echo no ERROR: here"\n{PATTERN}'
        f'[tasks.silent]\nrun = "true"\n{PATTERN}'
        f'[tasks.worse]\nrun = "echo ERROR: x; exit 3"\n{PATTERN}'
        f'[tasks.again]\nrun = "echo ERROR: again >&2"\n{PATTERN}retry_attempts = 1\nretry_delay = "0s"\n'
    )
    daemon.start()
    names = ("bad", "late", "good", "silent", "worse", "again")
    ended = {name: daemon.ended(daemon.trigger(name)) for name in names}
    assert {name: (run["endReason"], run["exitCode"]) for name, run in ended.items()} == {
        "bad": ("failed", 0),
        "late": ("failed", 0),
        "good": ("succeeded", 0),
        "silent": ("succeeded", 0),
        "worse": ("failed", 3),
        "again": ("failed", 0),
    }
    numbers = {
        name: daemon.get(f"/api/runs/{run['id']}/ending").json().get("failureLine") for name, run in ended.items()
    }
    assert numbers == {"bad": 1, "late": 200_000, "good": None, "silent": None, "worse": None, "again": 0}
    until(lambda: "failed by its output: fatal: no disk" in daemon.own_output(), "a word about it")
    until(lambda: [run.get("endReason") for run in daemon.runs("again")] == ["failed"] * 2, "its retry")
    shown = daemon.cli("run", "bad")
    assert shown.returncode == 1
    assert "failed: line 1 of its log matches failure_output" in shown.stderr


def test_one_of_several_runs_fails_by_its_output(daemon: Daemon) -> None:
    """``ringward run`` of several tasks exits with 1 if one fails by its output, and names its task and reason."""
    daemon.write(
        f'[tasks.good]\nrun = "echo fine"\n[tasks.bad]\nrun = "echo fatal: no disk"\n{PATTERN}'
        '[tasks.slow]\nrun = "exec sleep 600"\ntimeout = "100ms"\n'
    )
    daemon.start()
    shown = daemon.cli("run", "good", "bad", "slow")
    ids = {name: daemon.runs(name)[0]["id"] for name in ("bad", "slow")}
    assert shown.returncode == 1
    assert sorted(shown.stdout.splitlines()) == ["bad  | fatal: no disk", "good | fine"]
    assert sorted(line for line in shown.stderr.splitlines() if line.startswith("ringward: ")) == [
        f"ringward: bad: run {ids['bad']} failed: line 0 of its log matches failure_output",
        f"ringward: slow: run {ids['slow']} ended: timeout",
    ]
    assert daemon.cli("run", "good", "good").returncode == 0


def test_lines_that_end_in_crlf(daemon: Daemon) -> None:
    """A pattern with $ matches lines that end in CRLF; their bytes stay in the log."""
    daemon.write(
        '[tasks.t]\nrun = "printf \'x\\\\r\\\\nERROR\\\\r\\\\n\'"\nfailure_output = "^ERROR$"\n'
        '[services.s]\nrun = "printf \'4 connections\\\\r\\\\n\'; exec sleep 600"\nready = { log = "connections$" }\n'
    )
    daemon.start()
    ended = daemon.ended(daemon.trigger("t"))
    assert (ended["endReason"], ended["exitCode"]) == ("failed", 0)
    assert daemon.get(f"/api/runs/{ended['id']}/log/raw").body == b"x\r\nERROR\r\n"
    assert daemon.get("/api/tasks/t/log/search?q=x%24&regex=true").json()["items"][0]["text"] == "x\r"
    until(lambda: daemon.task("s")["state"] == "running", "the service to be ready")


def test_lines_match_as_displayed(daemon: Daemon) -> None:
    """Neither escape sequences, as gcc prints them, nor bytes that are not UTF-8 hide a line.

    This holds for ``failure_output``, ``ready`` and ``--grep``.
    """
    daemon.write(
        "[tasks.latin]\nrun = '''printf 'caf\\351 ERROR disk\\n''''\nfailure_output = '^caf.*ERROR'\n"
        "[tasks.red]\nrun = '''printf '\\033[31m\\033[KERROR\\033[m\\033[K: disk\\n''''\nfailure_output = '^ERROR: '\n"
        "[services.s]\nrun = '''printf 'ready in \\033[1m129\\033[22m ms\\n'; exec sleep 600'''\n"
        "ready = { log = '^ready in [0-9]+ ms$' }\n"
    )
    daemon.start()
    for name in ("latin", "red"):
        assert daemon.ended(daemon.trigger(name))["endReason"] == "failed"
    until(lambda: daemon.task("s")["state"] == "running", "the service to be ready")
    until(lambda: "failed by its output: ERROR: disk after" in daemon.own_output(), "the daemon to report the match")
    assert "disk" in daemon.cli("logs", "red", "--grep", "^ERROR: disk$").stdout
    assert daemon.cli("search", "--raw", "-E", "^ERROR: ").returncode == 1


def test_match_survives_a_killed_scheduler(daemon: Daemon, tmp_path: Path) -> None:
    """A match is kept when the scheduler is killed, and when the run ends while no scheduler runs."""
    flag = tmp_path / "flag"
    wait = f"while ! test -e '{flag}'; do sleep 0.05; done"
    daemon.write(
        f'[tasks.t]\nrun = "echo ERROR: early; {wait}"\n{PATTERN}[tasks.u]\nrun = "{wait}; echo ERROR: late"\n{PATTERN}'
    )
    daemon.start()
    first, second = daemon.trigger("t"), daemon.trigger("u")
    until(lambda: daemon.texts(first), "its line")
    until(lambda: daemon.run(second)["status"] == "running", "the other one")
    daemon.kill_helper("ringward scheduler")
    scheduler = daemon.helper("ringward scheduler")
    scheduler.suspend()
    flag.touch()
    until(lambda: daemon.texts(second), "the other one's line")
    scheduler.kill()
    assert [daemon.ended(run_id)["endReason"] for run_id in (first, second)] == ["failed", "failed"]


def test_masked_secrets_never_match(daemon: Daemon) -> None:
    """A pattern cannot reveal a secret that the log masks."""
    daemon.write('[tasks.t]\nrun = "echo $TOKEN"\nsecrets = { TOKEN = "hunter2hunter2" }\nfailure_output = "hunter"\n')
    daemon.start()
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"


def test_matching_line_fails_a_service(daemon: Daemon) -> None:
    """A matching line makes the end of a service a failure, even for its restart policy."""
    daemon.write(f'[services.s]\nrun = "echo ERROR: x"\nrestart = "on_failure"\nrestart_attempts = 0\n{PATTERN}')
    daemon.start()
    until(lambda: daemon.task("s")["state"] == "fatal", "fatal")
    assert [run["endReason"] for run in daemon.runs("s")] == ["failed"]
