"""Warnings about missing requirements of runs in a valid configuration."""

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from supervisor.config.load import load
from supervisor.schedule.cron import Occurrence
from supervisor.schedule.instants import Schedule
from supervisor.startup.advice import advised_soon, available_controllers, cut_short, missing, odd_times
from tests.support.command_line import Ringward
from tests.support.threads import no_memory_for_threads

NOW_MS = 1_764_000_000_000


def warned(tmp_path: Path, text: str) -> list[tuple[int | None, str, str]]:
    """Return the line, key and message of each warning about a configuration."""
    path = tmp_path / "ringward.toml"
    path.write_text(text)
    path.chmod(0o644)
    config = load(str(path), {})
    problems_found = [*missing(config, {"PATH": f"{tmp_path}/bin:/bin"}), *cut_short(config, NOW_MS)]
    problems_found += odd_times(config, NOW_MS)
    return [(problem_found.line, problem_found.key, problem_found.message) for problem_found in problems_found]


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        ("run = 'x'\nuser = 'no-such-user'", "user", "no such user: no-such-user"),
        ("run = 'x'\nuser = 'root:no-such'", "user", "no such group: no-such"),
        ("run = 'x'\nworking_dir = '/no/such'", "working_dir", "no such directory: /no/such"),
        ("run = 'x'\nworking_dir = '/bin/sh'", "working_dir", "no such directory: /bin/sh"),
        ("\nrun = ['/no/such', 'x']", "run", "no such program: /no/such"),
        ("\nrun = ['bin/no-such']\nworking_dir = '/'", "run", "no such program: bin/no-such"),
        ("\nrun = '/no/such --fast'", "run", "no such program: /no/such"),
        ("\nrun = ['nosuch-xyz']\nenv = { PATH = '/bin' }", "run", "no such program: nosuch-xyz in PATH (/bin)"),
        ("run = 'x'\nshell = '/no/sh'", "shell", "no such program: /no/sh"),
    ],
)
def test_missing_requirements(tmp_path: Path, lines: str, key: str, message: str) -> None:
    """An unknown user, a missing directory and a missing program are reported before a run, with their line."""
    for table in ("tasks", "services"):
        assert warned(tmp_path, f"[{table}.a]\n{lines}\n") == [(3, f"{table}.a.{key}", message)]


def test_condition_without_its_program(tmp_path: Path) -> None:
    """The missing program of a condition is reported with its line, like that of the command."""
    text = "[tasks.a]\nrun = ['no-run']\nonly_if = ['no-if']\n[tasks.b]\nrun = 'true'\nonly_if = { path = '/no' }\n"
    assert [(line, key) for line, key, _message in warned(tmp_path, text)] == [
        (2, "tasks.a.run"),
        (3, "tasks.a.only_if"),
    ]


@pytest.mark.parametrize(
    ("first", "second", "warns"),
    [
        ('{ cron = "0 2 * * sun", params = { F = 1 } }', '"0 2 1 * *"', True),
        ('{ cron = "0 2 * * sun", params = { F = 1 } }', '"0 2 * * mon-sat"', False),
        ('{ cron = "0 2 * * sun", params = { F = 1 } }', '{ cron = "0 2 1 * *", params = { F = 1 } }', False),
        ('"0 2 * * sun"', '"0 2 1 * *"', False),
    ],
)
def test_expressions_with_common_times(tmp_path: Path, first: str, second: str, warns: bool) -> None:
    """A time with two sets of parameters is reported, because the run gets those of the first expression only."""
    text = f"[tasks.a]\nrun = 'true'\nparams = [{{ name = 'F', kind = 'env' }}]\ncron = [{first}, {second}]\n"
    found = warned(tmp_path, text)
    assert [(line, key) for line, key, _message in found] == [(4, "tasks.a.cron")] * warns
    assert all('"0 2 * * sun" and "0 2 1 * *" have 2026-02-01T02:00:00' in message for *_, message in found)


def test_user_of_a_daemon_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy for a user that exists, but that the daemon may not use, is not to create it."""
    path = tmp_path / "ringward.toml"
    path.write_text("[tasks.a]\nrun = 'x'\nuser = 'daemon'\n")
    path.chmod(0o644)
    config = load(str(path), {})
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    (warning,) = missing(config, {"PATH": "/bin"})
    assert warning.message.startswith("only root can run commands as daemon")
    assert warning.remedy == "run the daemon as root, or its runs end as start_failed"


def test_links_that_start_no_runs(tmp_path: Path) -> None:
    """A symbolic link in on_change is reported unless Kubernetes has made it: a write to its target starts no run."""
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "mounted").symlink_to("..data/mounted")
    (tmp_path / "file").touch()
    paths = [f"{tmp_path}/{name}" for name in ("link", "file", "l*", "mounted")]
    text = f"[tasks.a]\nrun = 'x'\non_change = {paths}\n"
    message = f"{tmp_path}/link is a symbolic link, and writes to its target start no runs"
    assert warned(tmp_path, text) == [(3, "tasks.a.on_change", message)]


def test_missing_requirement_of_the_defaults(tmp_path: Path) -> None:
    """A wrong value in [defaults] is reported there, for each task that uses it."""
    text = "[defaults]\nworking_dir = '/no/such'\n[tasks.a]\nrun = 'x'\n[tasks.b]\nrun = 'x'\nworking_dir = '/'\n"
    message = "no such directory: /no/such (of task a)"
    assert warned(tmp_path, text) == [(2, "defaults.working_dir", message)]


@pytest.mark.parametrize(
    "lines",
    [
        "run = ['sh', '-c', 'x']",
        "run = ['own']",
        "run = 'nosuch-xyz | FOO=1 /no/such'",
        "run = '$HOME/no/such'",
        "run = ['/no/such']\nlauncher = 'docker'",
        "run = ['ringward', 'restart', 'a']\nmay = ['restart:a']",
        f"run = 'x'\nworking_dir = '/'\nuser = '{pwd.getpwuid(os.geteuid()).pw_name}'",
    ],
)
def test_no_warning(tmp_path: Path, lines: str) -> None:
    """Existing requirements, programs of other hosts, and text that only a shell can resolve give no warning."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "own").touch(0o755)
    launcher = "[launchers.docker]\npreset = 'docker'\nimage = 'x'\n" if "launcher" in lines else ""
    assert warned(tmp_path, f"{launcher}[services.a]\n{lines}\n") == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("every = '1m'\nkeep_for = '90d'", "keep_runs = 1000 covers only about 17h of this schedule"),
        ("cron = '*/5 * * * *'\nkeep_for = '90d'", "keep_runs = 1000 covers only about 3d of this schedule"),
        ("cron = '0 * * * mon-fri'\nkeep_for = '90d'\nkeep_runs = 100", "keep_runs = 100 covers only about 6d"),
        ("cron = '0 3 * * *'\nkeep_for = '90d'", None),
        ("cron = '*/5 * * * *'", None),
        ("cron = '*/5 * * * *'\nkeep_for = '90d'\nkeep_runs = 26000", None),
        ("keep_for = '90d'", None),
        ("cron = '*/5 * * * *'\nkeep_for = '3d'", None),
    ],
)
def test_retention_shorter_than_keep_for(tmp_path: Path, keys: str, message: str | None) -> None:
    """A task whose schedule fills keep_runs before keep_for has passed gets a warning, and others get none."""
    warnings = warned(tmp_path, f"[tasks.a]\nrun = 'x'\n{keys}\n")
    assert [problem_found[:2] for problem_found in warnings] == ([] if message is None else [(4, "tasks.a.keep_for")])
    assert all(message in problem_found[2] for problem_found in warnings if message)
    table, _, keys = keys.partition("\n")
    in_defaults = warned(tmp_path, f"[defaults]\n{keys}\n[tasks.a]\nrun = 'x'\n{table}\n")
    assert bool(in_defaults) == (message is not None)


@pytest.mark.parametrize(("keep_for", "followed"), [("30d", 3), ("800d", 4)])
def test_rare_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_for: str, followed: int) -> None:
    """A schedule is followed to its first instant after ``keep_for``, at least for a year, and not for centuries."""
    instants = []
    occurrences = Schedule.occurrences

    def counted(schedule: Schedule, mark_ms: int, after_ms: int = 0) -> Iterator[Occurrence]:
        for occurrence in occurrences(schedule, mark_ms, after_ms):
            instants.append(occurrence.at)
            yield occurrence

    monkeypatch.setattr(Schedule, "occurrences", counted)
    text = f"[tasks.a]\nrun = 'x'\ncron = '0 0 1 11 *'\nkeep_runs = 1\nkeep_for = '{keep_for}'\n"
    warnings = warned(tmp_path, text)
    assert len(instants) <= followed
    messages = [warning[2] for warning in warnings]
    assert len(messages) == (keep_for == "800d")
    assert all(message.startswith("keep_runs = 1 covers only about") for message in messages)


def test_validate_and_doctor_warn(ringward: Ringward, tmp_path: Path) -> None:
    """A configuration with warnings stays valid: validate exits with 0, and doctor does not fail."""
    path = tmp_path / "ringward.toml"
    path.write_text("[tasks.a]\nrun = ['/no/such']\nuser = 'no-such-user'\n")
    path.chmod(0o644)
    result = ringward("validate", str(path))
    assert result.exit_code == exit_codes.OK
    assert f"warning: {path}:3: tasks.a.user: no such user: no-such-user\n  create" in result.stderr
    document = json.loads(ringward("validate", "--json", str(path)).stdout)
    assert [(warning["key"], warning["line"]) for warning in document["warnings"]] == [
        ("tasks.a.user", 3),
        ("tasks.a.run", 2),
    ]
    findings = json.loads(ringward("doctor", "-c", str(path), "--json").stdout)
    runs = [finding for finding in findings if finding["what"] == "runs"]
    assert [run["verdict"] for run in runs] == ["warn", "warn"]
    assert runs[1]["text"] == f"{path}:2: tasks.a.run: no such program: /no/such"


def test_advice_without_memory_for_a_thread(tmp_path: Path) -> None:
    """Without memory for its thread, advice is left out rather than waited for."""
    path = tmp_path / "ringward.toml"
    path.write_text("[tasks.t]\nrun = 'x'\nuser = 'no-such-user'\n")
    path.chmod(0o644)
    config = load(str(path), {})
    with no_memory_for_threads():
        assert advised_soon(config, {}) == []
    assert advised_soon(config, {})


def test_list_of_one_text_with_blanks(tmp_path: Path) -> None:
    """A list with a whole command line as its only item gets the list that was probably meant."""
    path = tmp_path / "ringward.toml"
    path.write_text("[tasks.a]\nrun = ['backup --all']\n")
    path.chmod(0o644)
    (problem,) = missing(load(str(path), {}), {"PATH": "/bin"})
    assert problem.message == "no such program: backup --all in PATH (/bin)"
    assert problem.remedy == 'write each word as an item of the list: ["backup", "--all"]'


def test_unavailable_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit without an available controller is reported with its line; other limits and jobs elsewhere are not."""
    text = "[tasks.a]\nrun = 'x'\nlimits = { memory = '1gb', cpu = 2, nice = 5 }\n"
    elsewhere = (
        "[launchers.l]\npreset = 'ssh'\nhost = 'h'\n[tasks.b]\nrun = 'x'\nlauncher = 'l'\nlimits = { cpu = 1 }\n"
    )
    monkeypatch.setattr("supervisor.startup.advice.available_controllers", lambda: frozenset({"cpu", "io"}))
    message = "limits.memory is not applied: no cgroup with the memory controller is available"
    assert warned(tmp_path, text + elsewhere) == [(3, "tasks.a.limits", message)]
    assert len(warned(tmp_path, "[daemon]\ncgroups = 'off'\n" + text)) == 2


def test_available_controllers(tmp_path: Path) -> None:
    """Root can enable controllers of the hierarchy; another user only in its own cgroup, if that is writable."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/old\n0::/mine\n")
    types = {"/": "ext4", str(tmp_path): "cgroup2"}
    expected = {"cpu", "memory", "pids"} if os.geteuid() == 0 else {"memory"}
    assert available_controllers(types, str(tmp_path)) == expected
    assert available_controllers({"/": "ext4"}, str(tmp_path)) == frozenset()


@pytest.mark.parametrize(
    ("schedule", "window", "warned_key"),
    [
        ('cron = "0 2 * * *"', 'cron = "0 1 * * *"\nduration = "2h"', "cron"),
        ('cron = "0 4 * * *"', 'cron = "0 1 * * *"\nduration = "2h"', None),
        ('cron = "0 2 * * *"', 'cron = "0 1 * * *"\nduration = "2h"\ninstants = "defer"', None),
        ('at = "2030-01-01T12:00:00Z"', 'from = "2030-01-01 00:00"\nto = "2030-01-02 12:00"', "at"),
    ],
)
def test_schedule_within_windows(tmp_path: Path, schedule: str, window: str, warned_key: str | None) -> None:
    """A task whose times are all skipped by a window is reported."""
    text = f"[daemon]\ntimezone = 'UTC'\n[windows.w]\n{window}\n[tasks.a]\nrun = 'true'\n{schedule}\n"
    found = [(key, message) for _, key, message in warned(tmp_path, text)]
    message = "has no time outside of the window w, which skips them"
    assert found == ([] if warned_key is None else [(f"tasks.a.{warned_key}", message)])
