"""Details of systemd units: lines, words, variables, specifiers, calendar events."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.tools.importers import systemd
from supervisor.tools.importers.import_result import Outcome
from supervisor.tools.importers.systemd import to_cron
from supervisor.tools.importers.unit_values import span
from tests.tools.importers.imported import checked, mentions


def test_systemd_syntax(tmp_path: Path) -> None:
    """Lines, words and escapes follow systemd.syntax(7) and systemd.service(5)."""
    outcome = Outcome()
    first_unit = r"""
[Unit]
Description=100%% of it
ConditionPathExists=/srv
StartLimitBurst=7
[Service]
# a comment that ends in a backslash \
Environment="DATE=+%%F" \
# this line is ignored
; this line is ignored too
  TAB=a\x09b "LINES=a\nb"
ExecStart=/bin/one
Group=adm
KillMode=mixed
Restart=on-abnormal
SuccessExitStatus=1
SuccessExitStatus=2 3
TimeoutStopSec=0
WorkingDirectory=-/srv
"""
    two = r"""
[Service]
Type=oneshot
ExecStart=echo one ; -echo "two two"
ExecStart=echo / >/dev/null & \; ls
"""
    timed = "[Service]\nExecStart=/bin/long\nTimeoutStartSec=30\nRestart=on-failure\n"
    timers = {
        "timed.timer": "[Timer]\nOnCalendar=10:00 Europe/Prague\nOnCalendar=11:00 UTC\n",
        "more.timer": "[Timer]\nOnCalendar=daily\nUnit=timed.service\n",
    }
    systemd.read({"one.service": first_unit, "two.service": two, "timed.service": timed, **timers}, outcome)
    units = checked(outcome, tmp_path)
    assert units["one"]["description"] == "100% of it"
    assert units["one"]["env"] == {"DATE": "+%F", "TAB": "a\tb", "LINES": "a\nb"}
    assert (units["one"]["user"], units["one"]["exit_codes"]) == ("root:adm", [0, 1, 2, 3])
    assert (units["one"]["restart_attempts"], units["one"]["graceful_stop"]) == (6, "520w")
    assert units["one"]["stop_target"] == "main"
    for words in ("ConditionPathExists", "on-abnormal", "shutdown_timeout", "WorkingDirectory=-/srv"):
        assert mentions(outcome, "one.service", words)
    done = subprocess.run(["/bin/sh", "-e", "-c", units["two"]["run"]], capture_output=True, text=True)
    assert done.stdout == "one\ntwo two\n/ >/dev/null & ; ls\n"
    assert "timeout" not in units["timed"]
    assert mentions(outcome, "timed.service", "Restart=on-failure")
    assert mentions(outcome, "timed.timer", "several time zones")
    assert mentions(outcome, "more.timer", "another timer")


def test_variables_in_systemd_commands(tmp_path: Path) -> None:
    """A variable that is a separate word is split into words, which are not expanded as file patterns."""
    outcome = Outcome()
    first_unit = """[Service]
Environment="ARGS=-x /* [a-z]"
ExecStartPre=printf %%s; $ARGS
ExecStart=printf %%s; ${ARGS} $NONE
"""
    systemd.read({"one.service": first_unit}, outcome)
    run = checked(outcome, tmp_path)["one"]["run"]
    variables = {"PATH": "/usr/bin:/bin", "ARGS": "-x /* [a-z]", "NONE": ""}
    done = subprocess.run(["/bin/sh", "-e", "-c", run], env=variables, capture_output=True, text=True)
    assert done.stdout == "-x;/*;[a-z];-x /* [a-z];"


def test_systemd_specifiers(tmp_path: Path) -> None:
    """Specifiers of the unit's name are replaced; others are reported, in variables and in commands."""
    outcome = Outcome()
    first_unit = "[Service]\nExecStart=/bin/one\nEnvironment=CACHE=%C/%p SHARE=90%%h\n"
    two = "[Service]\nExecStart=/bin/two\nEnvironment=CACHE=%h/.cache\n"
    systemd.read({"one.service": first_unit, "two.service": two}, outcome)
    assert checked(outcome, tmp_path)["one"]["env"] == {"CACHE": "/var/cache/one", "SHARE": "90%h"}
    assert mentions(outcome, "two.service", "specifiers", "Environment=CACHE=%h/.cache")
    assert not mentions(outcome, "one.service", "specifiers")


def test_units_started_at_boot(tmp_path: Path) -> None:
    """Units started once at boot are carried over; units that nothing starts are reported."""
    outcome = Outcome()
    service = "[Service]\nType=oneshot\nExecStart=/bin/once\n[Install]\n"
    files = {
        "boot.service": f"{service}WantedBy=sysinit.target\nWantedBy=multi-user.target",
        "sleep.service": f"{service}WantedBy=sleep.target",
        "alone.service": service,
        "timed.service": f"{service}WantedBy=multi-user.target",
        "timed.timer": "[Timer]\nOnCalendar=daily",
    }
    systemd.read(files, outcome)
    units = checked(outcome, tmp_path)
    assert {name: unit.get("run_on_start") for name, unit in units.items()} == {
        "boot": "boot",
        "sleep": None,
        "alone": None,
        "timed": None,
    }
    unscheduled = {note.partition(":")[0] for note in outcome.notes if "without a schedule" in note}
    assert unscheduled == {"sleep.service", "alone.service"}


@pytest.mark.parametrize(
    ("text", "cron"),
    [
        ("daily", "0 0 * * *"),
        ("weekly", "0 0 * * 1"),
        ("*:0/15", "0-59/15 * * * *"),
        ("*-*-* 04:05:06", "6 5 4 * * *"),
        ("*-*-01 12:00", "0 12 1 * *"),
        ("Fri..Mon 10:00", "0 10 * * 0,1,5,6"),
        ("Mon..Sun 10:00", "0 10 * * *"),
        ("*-01,07-01", "0 0 1 1,7 *"),
        ("*-*-* 8..18:30", "30 8-18 * * *"),
    ],
)
def test_calendar_events(text: str, cron: str) -> None:
    """Calendar events become equivalent cron expressions."""
    assert to_cron(text) == cron


@pytest.mark.parametrize("text", ["2027-01-01 00:00", "Mon *-*-1..7 09:00", "Someday 10:00", "*-*~1 10:00", ""])
def test_calendar_events_without_a_cron_expression(text: str) -> None:
    """Calendar events without an equivalent cron expression are refused."""
    with pytest.raises(ValueError, match="no cron expression"):
        to_cron(text)


def test_time_spans() -> None:
    """Time spans can have no unit, which means seconds, or several units."""
    assert span("90") == 90
    assert span("1h 30min 2s") == 5402
    for text in ("infinity", "5 parsecs", ""):
        with pytest.raises(ValueError, match="not a time span"):
            span(text)


def test_too_long_time_span(tmp_path: Path) -> None:
    """A time span beyond all numbers is reported, and not carried over."""
    outcome, definition = service(tmp_path, f"TimeoutStopSec={'9' * 400}")
    assert "graceful_stop" not in definition
    assert mentions(outcome, "TimeoutStopSec")


def service(tmp_path: Path, *lines: str, unit: str = "") -> tuple[Outcome, dict[str, Any]]:
    """Import one service with these lines."""
    outcome = Outcome()
    text = "\n".join((f"[Unit]\n{unit}", "[Service]", "ExecStart=/bin/one", *lines, ""))
    systemd.read({"one.service": text}, outcome)
    return outcome, checked(outcome, tmp_path)["one"]


@pytest.mark.parametrize(
    ("lines", "unit", "attempts", "healthy_after"),
    [
        (["Restart=always", "RestartSec=3"], "", "unlimited", None),
        (["Restart=always"], "", 4, "2s"),
        (["Restart=on-failure", "RestartSec=1"], "StartLimitIntervalSec=60\nStartLimitBurst=3", 2, "20s"),
        (["Restart=always"], "StartLimitIntervalSec=0", "unlimited", None),
        (["Restart=always", "StartLimitInterval=0"], "", "unlimited", None),
        (["Restart=always"], "StartLimitBurst=0", "unlimited", None),
        (["Restart=always", "RestartSec=1h"], "StartLimitIntervalSec=infinity", 4, "520w"),
    ],
)
def test_restarts(tmp_path: Path, lines: list[str], unit: str, attempts: int | str, healthy_after: str | None) -> None:
    """A service gives up after the same number of starts as under systemd, and never where that would take too long."""
    _, definition = service(tmp_path, *lines, unit=unit)
    assert (definition["restart_attempts"], definition.get("healthy_after")) == (attempts, healthy_after)
    assert definition["restart_backoff"] == "constant"


def test_growing_restart_delay(tmp_path: Path) -> None:
    """RestartSteps with RestartMaxDelaySec becomes a growing delay."""
    lines = ("Restart=always", "RestartSec=1", "RestartSteps=5", "RestartMaxDelaySec=1min")
    _, definition = service(tmp_path, *lines)
    assert (definition["restart_delay"], definition["restart_backoff"]) == ("1s", "exponential")
    assert definition["restart_max_delay"] == "60s"


@pytest.mark.parametrize(
    ("line", "timeout"),
    [("TimeoutStartSec=300", "300s"), ("TimeoutSec=2min", "120s"), ("TimeoutStartSec=infinity", "520w"), ("", "90s")],
)
def test_readiness_timeout(tmp_path: Path, line: str, timeout: str) -> None:
    """A service that reports its readiness has the time limit of its unit, or 90 s without one."""
    _, definition = service(tmp_path, "Type=notify", line, "WatchdogSec=30s")
    assert definition["ready"] == {"notify": True, "timeout": timeout}
    assert definition["live"] == {"notify": True, "every": "30s", "failures": 1}


def test_stop_settings(tmp_path: Path) -> None:
    """Signals can be numbers, statuses names; a long or infinite stop time is reported with the key that limits it."""
    outcome, definition = service(
        tmp_path, "KillSignal=15", "SuccessExitStatus=143 SIGINT TEMPFAIL", "TimeoutStopSec=infinity"
    )
    assert definition["stop_signal"] == "SIGTERM"
    assert definition["exit_codes"] == [0, 143, 130, 75]
    assert definition["graceful_stop"] == "520w"
    assert mentions(outcome, "one.service", "shutdown_timeout")
    assert outcome.lost
    assert not service(tmp_path, "TimeoutStopSec=5")[0].notes
    default, definition = service(tmp_path)
    assert (default.lost, definition["graceful_stop"]) == ([], "90s")
    assert mentions(default, "shutdown_timeout")


def test_stop_target(tmp_path: Path) -> None:
    """KillMode=mixed and process stop only the main process; with process, leftovers continue."""
    _, definition = service(tmp_path, "KillMode=mixed")
    assert (definition["stop_target"], definition.get("leftovers")) == ("main", None)
    outcome, definition = service(tmp_path, "KillMode=process")
    assert (definition["stop_target"], definition["leftovers"]) == ("main", "leave")
    assert mentions(outcome, "KillMode=process")
    assert mentions(service(tmp_path, "KillMode=none")[0], "KillMode=none")


def test_output_elsewhere(tmp_path: Path) -> None:
    """Output to the journal causes no report; files, sockets and null do, and so does standard input."""
    assert not service(tmp_path, "StandardOutput=journal", "StandardError=inherit", "TimeoutStopSec=1")[0].notes
    lines = ("StandardOutput=append:/var/log/one.log", "StandardError=null", "StandardInput=socket")
    outcome, _ = service(tmp_path, *lines)
    for line in lines:
        assert mentions(outcome, line)


def test_comments_are_in_the_unit(tmp_path: Path) -> None:
    """Settings not carried over are listed directly above the table of the unit."""
    outcome, _ = service(tmp_path, "ProtectHome=yes", "TimeoutStopSec=1")
    lines = outcome.toml("a test").splitlines()
    assert lines[lines.index("[services.one]") - 1] == "# LOOK AT THIS: ProtectHome=yes is not carried over"
