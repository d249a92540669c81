"""Details of crontabs: shell commands, options, fields, columns, names."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli import exit_codes
from supervisor.tools.importers import crontab
from supervisor.tools.importers.crontab import name_of
from supervisor.tools.importers.import_result import Outcome
from tests.support.command_line import Ringward
from tests.tools.importers.imported import checked, mentions


def imported(tmp_path: Path, text: str, *, system: bool = False) -> tuple[Outcome, dict[str, Any]]:
    outcome = Outcome()
    crontab.read("tab", text, outcome, system=system)
    return outcome, checked(outcome, tmp_path)


def only(tmp_path: Path, line: str, *, system: bool = False) -> dict[str, Any]:
    (unit,) = imported(tmp_path, f"{line}\n", system=system)[1].values()
    definition: dict[str, Any] = unit
    return definition


@pytest.mark.parametrize(
    ("command", "run"),
    [
        ("sleep 1000 &", "sleep 1000"),
        ("cd /srv && sleep 1000 >/dev/null 2>&1 &", "cd /srv && sleep 1000 >/dev/null 2>&1"),
        ("nohup sleep 1000 &", "sleep 1000"),
        ("nohup setsid -f sleep 1000", "sleep 1000"),
        ("cd /srv && nohup ./x &", "cd /srv && ./x"),
        ("sleep 1000 &>> /tmp/x", "sleep 1000 >> /tmp/x 2>&1"),
        ("sleep 1000 &>/tmp/x &", "sleep 1000 >/tmp/x 2>&1"),
        ("echo 'a &' \"; b\" \\&", "echo 'a &' \"; b\" \\&"),
        ("a & b", ["/bin/sh", "-c", "a & b"]),
    ],
)
def test_background_commands(tmp_path: Path, command: str, run: str | list[str]) -> None:
    """A background command is kept in the foreground, so that its run lasts as long as the command."""
    unit = only(tmp_path, f"@reboot {command}")
    assert unit["run"] == run
    assert (unit["run_on_start"], unit["leftovers"]) == ("boot", "leave")


def test_redirection_in_bash(tmp_path: Path) -> None:
    """If SHELL is bash, &>> is not changed."""
    _, units = imported(tmp_path, "SHELL=/bin/bash\n@daily /opt/x &>> /tmp/x\n")
    assert (units["x"]["run"], units["x"]["shell"]) == ("/opt/x &>> /tmp/x", "/bin/bash")


@pytest.mark.parametrize(
    ("command", "status", "output"),
    [
        ("false; echo on", 0, "on\n"),
        ("[ -x /none ] && echo x", 0, ""),
        ("test -d / && echo x", 0, "x\n"),
        ("[ -x /none ] && echo x || echo y", 0, "y\n"),
        ("false; cat%given", 0, "given\n"),
        ("test -d / && cat%given", 0, "given\n"),
        ("true && false", 1, ""),
    ],
)
def test_commands_behave_as_in_cron(tmp_path: Path, command: str, status: int, output: str) -> None:
    """A list of commands continues after a failing one, and a false test is no failure."""
    run = only(tmp_path, f"@daily {command}")["run"]
    argv = run if isinstance(run, list) else ["/bin/sh", "-e", "-c", run]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, output)


def test_job_options(tmp_path: Path) -> None:
    """The options -n, -q and -s before a command are cron's; -s, one run at a time, becomes on_overlap."""
    unit = only(tmp_path, "*/5 * * * * -n /bin/backup -v")
    assert (unit["run"], "on_overlap" in unit) == ("/bin/backup -v", False)
    assert only(tmp_path, "*/5 * * * * -n -s /bin/backup")["on_overlap"] == "skip"
    assert only(tmp_path, "*/5 * * * * root -sq /bin/backup", system=True)["run"] == "/bin/backup"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0~59 * * * * /bin/x", "schedule cannot be expressed"),
        ("*/100,1-7 * * * * /bin/x", "schedule cannot be expressed"),
        ("@fortnightly /bin/x", "schedule cannot be expressed"),
        ("*/10 * * * * * * echo x", "more than 5 fields"),
        ("0 30 2 * * 1-5 /bin/x", "more than 5 fields"),
        ("0 2 * * * -z /bin/x", "-z"),
    ],
)
def test_omitted_jobs(ringward: Ringward, tmp_path: Path, line: str, reason: str) -> None:
    """A job that cannot be carried over becomes a comment in its place, and the exit status is 1."""
    source, target = tmp_path / "tab", tmp_path / "tab.toml"
    source.write_text(f"1 2 * * * /bin/before\n{line}\n3 4 * * * /bin/behind\n")
    result = ringward("import", "cron", str(source), "-o", str(target), plain=True)
    assert result.exit_code == exit_codes.REFUSED
    assert ringward("validate", str(target), plain=True).exit_code == exit_codes.OK
    toml = target.read_text()
    (comment,) = (text for text in toml.splitlines() if text.startswith("# LOOK AT THIS"))
    assert f"{source}:2" in comment
    assert reason in comment
    assert line in comment
    assert toml.index("[tasks.before]") < toml.index(comment) < toml.index("[tasks.behind]")
    assert toml.count("[tasks.") == 2


def test_user_column(tmp_path: Path) -> None:
    """A file whose jobs all begin with a user has a user column; a single user among programs is reported."""
    assert crontab.is_system("tab", "SHELL=/bin/sh\n1 2 * * * root /bin/x\n@daily nobody /bin/y\n")
    assert not crontab.is_system("tab", "1 2 * * * root /bin/x\n@daily /bin/y z\n")
    assert not crontab.is_system("tab", "# only a comment\n")
    outcome, _ = imported(tmp_path, "1 2 * * * root /bin/x\n@daily /bin/y z\n")
    assert mentions(outcome, "tab:1", "root is a user", "--system")
    outcome, units = imported(tmp_path, "1 2 * * * /bin/x -v\n", system=True)
    assert not units
    assert mentions(outcome, "tab:1", "no such user: /bin/x")


def test_descriptions(tmp_path: Path) -> None:
    """The comment above a job becomes its description, unless it is a disabled job, a variable or a heading."""
    text = """
# Dump of the shop
1 * * * * /bin/a
#2 * * * * /bin/old --all
3 * * * * /bin/b
# @daily /bin/older
4 * * * * /bin/c
# MAILTO=x
5 * * * * /bin/d
# m h  dom mon dow   command
6 * * * * /bin/e
# ---------------- minute (0 - 59)
7 * * * * /bin/f
# Ask Anna first

8 * * * * /bin/g
"""
    _, units = imported(tmp_path, text)
    assert [unit.get("description") for unit in units.values()] == ["Dump of the shop", *[None] * 6]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("nice -n 19 /opt/backup.sh", "backup"),
        ("ionice -c 3 -n 0 /opt/backup.sh", "backup"),
        ("yes y | /opt/setup", "setup"),
        ("source /srv/venv/bin/activate && python manage.py clearsessions", "manage"),
        (". /etc/profile; /opt/x.sh", "x"),
        ("cd /srv/app && ./run.sh >> /var/log/x.log 2>&1", "run"),
        ("timeout 300 curl -fsS https://example.com/ > /dev/null", "curl"),
        ("flock -n /var/lock/sync.lock rsync -a /a /b", "rsync"),
        ("flock -w 5 /tmp/x.lock -c 'sync-all --now'", "sync-all"),
        ("sudo -u www-data php -q /srv/cron.php", "cron"),
        ("su - postgres -c 'vacuumdb --all'", "vacuumdb"),
        ("[ -x /usr/sbin/logrotate ] && /usr/sbin/logrotate /etc/logrotate.conf", "logrotate"),
        ("if [ -x /usr/bin/mrtg ]; then mkdir -p /x; env LANG=C /usr/bin/mrtg /etc/mrtg.cfg; fi", "mrtg"),
        ("LANG=C /usr/bin/report", "report"),
        ("bash -lc 'cd /x && ./nightly.sh'", "nightly"),
        ("sleep $((RANDOM \\% 60)); /opt/late", "late"),
        ("19 0", "task"),
        ("true", "task"),
        ("false; echo on", "echo"),
        ("echo hello", "echo"),
    ],
)
def test_names(command: str, name: str) -> None:
    """A job is named after the program that does the work, not after a wrapper, an option, a number or a keyword."""
    assert name_of(command) == name
