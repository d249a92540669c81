"""Details of crontabs: shell commands, options, fields, columns, names."""

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomli

from supervisor.cli import exit_codes
from supervisor.tools.importers import crontab
from supervisor.tools.importers.cron_commands import name_of
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
        ("nohup sleep 9 & echo $!", ["/bin/sh", "-c", "nohup sleep 9 & echo $!"]),
        ("cd /x && nohup a & nohup b", ["/bin/sh", "-c", "cd /x && nohup a & b"]),
        ("a && (nohup b & echo $!)", ["/bin/sh", "-c", "a && (nohup b & echo $!)"]),
        ("sleep 9 & # a comment", "sleep 9"),
    ],
)
def test_background_commands(tmp_path: Path, command: str, run: str | list[str]) -> None:
    """A background command is kept in the foreground, so that its run lasts as long as the command."""
    unit = only(tmp_path, f"@reboot {command}")
    assert unit["run"] == run
    assert (unit["run_on_start"], unit["leftovers"]) == ("boot", "leave")


def test_time_zone(tmp_path: Path) -> None:
    """A time zone applies, with a note, because not every cron knows it."""
    outcome, units = imported(tmp_path, "CRON_TZ=Europe/Prague\n@daily /bin/x\n")
    assert units["x"]["timezone"] == "Europe/Prague"
    assert mentions(outcome, "Debian's cron ignores it")


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
        ("[ -x /none ] && if true; then echo x; fi", 0, ""),
        ("[ -d / ] && if false; then echo x; fi", 0, ""),
        ("[ -d / ] && if true; then echo x; false; fi", 1, "x\n"),
        ("[ -d / ] && { echo x; false; }", 1, "x\n"),
        ("[ -x /none ] && (echo x; false)", 0, ""),
        ("command -v nowhere >/dev/null && nowhere", 0, ""),
        ("command -v true >/dev/null && echo x", 0, "x\n"),
        ("which nowhere && nowhere", 0, ""),
        ("type nowhere >/dev/null 2>&1 && nowhere", 0, ""),
        ("! true && echo x", 0, ""),
        ("expr 2 \\% 2 >/dev/null && echo x", 0, ""),
        ("kill -0 4194305 2>/dev/null && echo x", 0, ""),
        ("(( 0 )) 2>/dev/null && echo x", 1, ""),
        ("echo a | grep -q b && echo x", 0, ""),
        ("[ -d / ] && [ -d /none ] && echo x", 0, ""),
        ("[ -d /none ] || [ -d / ] && echo x", 0, "x\n"),
        ("[ -d /none ] || [ -d /none ] && echo x", 0, ""),
        ("( [ -d / ] && [ -d /none ] ) && echo x", 0, ""),
        ("cd / && [ -d none ] && echo x", 0, ""),
        ("[ -d / ] && cd /none && echo x", 2, ""),
        ("[ -d /none ] && echo x;", 0, ""),
        ("echo a; [ -d /none ] && echo x", 0, "a\n"),
        ("for i in 1 2; do echo $i; done; [ -d /none ] && echo x", 0, "1\n2\n"),
        ("[ -d / ] && echo x # a comment", 0, "x\n"),
        ("[ -d /none ] && echo 'a && b'", 0, ""),
        ("[ a == ] && echo x", 1, ""),
        ("[[ a == a ]] && echo x", 1, ""),
        ("nowhere && echo x", 127, ""),
        ("[ -d / ] && false", 1, ""),
        ("[ -d / ] && exit 3", 3, ""),
        ("echo $(true && echo x) && [ -d /none ] && echo y", 0, "x\n"),
        ("case x in x) [ -d / ];; esac && echo x", 0, "x\n"),
    ],
)
def test_commands_behave_as_in_cron(tmp_path: Path, command: str, status: int, output: str) -> None:
    """A list of commands continues after a failing one, and a false test is no failure, unlike a test that fails."""
    run = only(tmp_path, f"@daily {command}")["run"]
    argv = run if isinstance(run, list) else ["/bin/sh", "-e", "-c", run]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, output)


def test_arithmetic_of_bash(tmp_path: Path) -> None:
    """An arithmetic test of bash that is false is no failure."""
    run = imported(tmp_path, "SHELL=/bin/bash\n@daily (( 1 > 2 )) && echo x\n")[1]["echo"]["run"]
    assert subprocess.run(["/bin/bash", "-e", "-c", run]).returncode == 0


def test_commands_that_can_fail_before_others(tmp_path: Path) -> None:
    """A command before && that is no known test still fails its run, which the report says."""
    outcome, _ = imported(tmp_path, "@daily cd /x && pg_dump a && gzip a\n")
    assert mentions(outcome, "tab:1", "the run fails if pg_dump a fails")
    assert not mentions(outcome, "if cd /x fails")
    assert not mentions(imported(tmp_path, "@daily LC_ALL=C A=1 && urlwatch\n")[0], "the run fails")
    assert not mentions(imported(tmp_path, "SHELL=/bin/csh\n@daily test -x /x && /x\n")[0], "written with if")


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
    """A job that cannot be converted becomes a comment in its place, and the exit status is 1."""
    source, target = tmp_path / "tab", tmp_path / "tab.toml"
    source.write_text(f"1 2 * * * /bin/before\n{line}\n3 4 * * * /bin/behind\n")
    result = ringward("import", "cron", str(source), "-o", str(target), plain=True)
    assert result.exit_code == exit_codes.REFUSED
    assert ringward("validate", str(target), plain=True).exit_code == exit_codes.OK
    toml = target.read_text()
    (comment,) = (text for text in toml.splitlines() if text.startswith("# CHECK"))
    assert f"{source}:2" in comment
    assert reason in comment
    assert line in comment
    assert toml.index("[tasks.before]") < toml.index(comment) < toml.index("[tasks.behind]")
    assert toml.count("[tasks.") == 2


@pytest.mark.parametrize(
    ("path", "text", "has_users", "note"),
    [
        ("tab", "SHELL=/bin/sh\n1 2 * * * root /bin/x\n@daily nobody cd /x && y\n", True, None),
        ("tab", "1 2 * * * deploy /srv/run\n", True, "deploy: taken for users; use --no-system"),
        ("tab", "1 2 * * * root /bin/x\n1 3 * * * backup /srv/run\n", True, "backup: taken for users"),
        ("tab", "1 2 * * * backup --all\n", False, "tab:1: backup is a user, but taken for a program"),
        ("tab", "1 2 * * * root /bin/x\n@daily /bin/y z\n", False, "tab:1: root is a user, but taken for a program"),
        ("tab", "1 2 * * * sort /bin/x\n", False, None),
        ("tab", "# only a comment\n", False, None),
        ("etc/cron.d/x", "1 2 * * * sort /bin/x\n", True, None),
        ("old/etc/crontab", "1 2 * * * sort /bin/x\n", True, None),
        ("old/crontabs/root", "1 2 * * * deploy /bin/x\n", False, None),
    ],
)
def test_user_column(path: str, text: str, has_users: bool, note: str | None) -> None:
    """The path of a file tells whether it has a user column, or its lines do; any doubt is reported."""
    outcome = Outcome()
    assert crontab.has_users(path, text, outcome) == has_users
    assert not outcome.notes if note is None else mentions(outcome, note)


def test_user_column_by_option(ringward: Ringward, tmp_path: Path) -> None:
    """The options --system and --no-system decide without a doubt."""
    (tmp_path / "tab").write_text("1 2 * * * backup /srv/run\n")
    taken = {}
    for option in ("--system", "--no-system"):
        result = ringward("import", "cron", option, str(tmp_path / "tab"), plain=True)
        assert result.exit_code == exit_codes.OK
        (taken[option],) = tomli.loads(result.stdout)["tasks"].values()
    assert (taken["--system"]["user"], taken["--system"]["run"]) == ("backup", "/srv/run")
    assert ("user" in taken["--no-system"], taken["--no-system"]["run"]) == (False, "backup /srv/run")


def test_path_as_user(tmp_path: Path) -> None:
    """A path in the user column is reported, and its job left out."""
    outcome, units = imported(tmp_path, "1 2 * * * /bin/x -v\n", system=True)
    assert not units
    assert mentions(outcome, "tab:1", "no such user: /bin/x")


def test_user_without_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of a user without a home directory starts all the same, as with cron."""
    entry = pwd.getpwnam("nobody")
    monkeypatch.setattr(pwd, "getpwnam", lambda _: pwd.struct_passwd((*entry[:5], str(tmp_path / "no"), entry[6])))
    outcome, units = imported(tmp_path, "1 2 * * * nobody /bin/x\n", system=True)
    assert (units["x"]["user"], "working_dir" in units["x"]) == ("nobody", False)
    assert mentions(outcome, "tab:1", "nobody has no home directory")
    outcome, _ = imported(tmp_path, f"HOME={tmp_path}/no\n1 2 * * * /bin/x\n")
    assert mentions(outcome, "tab:2", "HOME: no directory")


ANACRONTAB = """
SHELL=/bin/sh
START_HOURS_RANGE=3-22
1\t5\tcron.daily\trun-parts --report /etc/cron.daily
7 10 cron.weekly run-parts --report /etc/cron.weekly
@monthly 15 cron.monthly run-parts --report /etc/cron.monthly
3 0 third.day /bin/third
"""


@pytest.mark.parametrize(("name", "text"), [("tab", ANACRONTAB), ("anacrontab", f"{ANACRONTAB}\n# end")])
def test_anacrontab(tmp_path: Path, name: str, text: str) -> None:
    """The jobs of an anacrontab keep their names and periods."""
    outcome = Outcome()
    crontab.read(name, text, outcome, system=False)
    units = checked(outcome, tmp_path)
    assert {unit: keys.get("cron", keys.get("every")) for unit, keys in units.items()} == {
        "cron.daily": "@daily",
        "cron.weekly": "@weekly",
        "cron.monthly": "@monthly",
        "third.day": "3d",
    }
    assert units["cron.daily"]["run"] == "run-parts --report /etc/cron.daily"
    assert mentions(outcome, f"{name}: is an anacrontab")
    assert not mentions(outcome, "cron starts these jobs")
    assert mentions(outcome, "START_HOURS_RANGE")


def test_commands_of_an_anacrontab(tmp_path: Path) -> None:
    """Anacron runs commands with /bin/sh in /, and knows no percent sign; SHELL and HOME are only variables."""
    outcome = Outcome()
    text = "SHELL=/bin/bash\nHOME=/no/such\n1 5 daily [ $(date +%u) = 7 ] || echo '50\\%' $SHELL $HOME $PWD\n"
    crontab.read("anacrontab", text, outcome, system=False)
    unit = checked(outcome, tmp_path)["daily"]
    assert "shell" not in unit
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", unit["run"].replace("= 7", "= 8")],
        capture_output=True,
        text=True,
        cwd=unit["working_dir"],
        env=os.environ | unit["env"],
    )
    assert (done.stdout, done.returncode) == ("50\\% /bin/bash /no/such /\n", 0)
    assert not mentions(outcome, "no directory")


def test_descriptions(tmp_path: Path) -> None:
    """The whole comment above a job becomes its description, unless a line is a disabled job, variable or heading."""
    text = """
# Dump of the shop,
#
# and of its mails
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
# Above a variable
A=1
9 * * * * /bin/h
# Half a sentence, and
# 2 * * * * /bin/old --all
10 * * * * /bin/i
"""
    _, units = imported(tmp_path, text)
    assert [unit.get("description") for unit in units.values()] == ["Dump of the shop, and of its mails", *[None] * 8]


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
