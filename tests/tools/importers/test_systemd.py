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


def test_successes_other_than_0(tmp_path: Path) -> None:
    """After a status of SuccessExitStatus, the next ExecStart runs; ExecStartPre succeeds with 0 only."""
    service = "[Service]\nType=oneshot\nSuccessExitStatus=1 24\nExecStart=/bin/sh -c 'exit {}'\nExecStart=echo next\n"
    before = "ExecStartPre=/bin/sh -c 'exit {}'\n"
    for first, then, status in ((0, 0, 0), (0, 24, 0), (0, 3, 3), (0, 2, 2), (24, 0, 2), (1, 0, 2), (3, 0, 2)):
        outcome = Outcome()
        systemd.read({"a.service": service.format(then) + before.format(first)}, outcome)
        unit = checked(outcome, tmp_path)["a"]
        done = subprocess.run(["/bin/sh", "-e", "-c", unit["run"]], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (status, "" if status else "next\n")
        assert (status in unit["exit_codes"]) == (status == 0)


def test_systemd_specifiers(tmp_path: Path) -> None:
    """Specifiers of the unit's name are replaced; others are reported, in variables and in commands."""
    outcome = Outcome()
    first_unit = "[Service]\nExecStart=/bin/one\nEnvironment=CACHE=%C/%p SHARE=90%%h\n"
    two = "[Service]\nExecStart=/bin/%n --home %h %%t\nEnvironment=CACHE=%h/.cache\nWorkingDirectory=%h/%i\n"
    systemd.read({"one.service": first_unit, "two.service": two}, outcome)
    assert checked(outcome, tmp_path)["one"]["env"] == {"CACHE": "/var/cache/one", "SHARE": "90%h"}
    assert mentions(outcome, "two.service", "specifiers", "Environment=CACHE=%h/.cache")
    assert mentions(outcome, "two.service", "(%h)", "ExecStart=/bin/two.service --home %h")
    assert mentions(outcome, "two.service", "(%h)", "WorkingDirectory=%h/")
    assert not mentions(outcome, "one.service", "specifiers")


def test_units_started_at_boot(tmp_path: Path) -> None:
    """Units started once at boot are converted; units that nothing starts are reported."""
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
    unscheduled = [note.location for note in outcome.lost if "without a schedule" in note.text]
    assert unscheduled == ["sleep.service, alone.service"]


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
        ("Sun *-*-1..7", "0 0 * * 0#1"),
        ("Mon,Tue *-*-08..14 09:00", "0 9 * * 1#2,2#2"),
        ("Sun *-01,07-1..7,15..21", "0 0 * 1,7 0#1,0#3"),
        ("Sun *-*~07/1 02:00", "0 2 * * L0"),
        ("*-*~01 10:00", "0 10 L * *"),
    ],
)
def test_calendar_events(text: str, cron: str) -> None:
    """Calendar events become equivalent cron expressions."""
    assert to_cron(text) == cron


@pytest.mark.parametrize(
    "text", ["2027-01-01 00:00", "Mon *-*-2..8 09:00", "Someday 10:00", "Mon *-*~1", "*-*~2", "*-*~7/1", ""]
)
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
    """A time span beyond all numbers is reported, and not converted."""
    outcome, definition = service(tmp_path, f"TimeoutStopSec={'9' * 400}")
    assert "graceful_stop" not in definition
    assert mentions(outcome, "TimeoutStopSec")


def service(tmp_path: Path, *lines: str, unit: str = "") -> tuple[Outcome, dict[str, Any]]:
    """Import one service with these lines."""
    outcome = Outcome()
    install = ("[Install]", "WantedBy=multi-user.target")
    text = "\n".join((f"[Unit]\n{unit}", "[Service]", "ExecStart=/bin/one", *lines, *install, ""))
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
    _, definition = service(tmp_path, "Restart=always", "RestartSteps=0", "RestartMaxDelaySec=1min")
    assert definition["restart_backoff"] == "constant"


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


def test_limits(tmp_path: Path) -> None:
    """The hard limit of a pair counts, and a soft one that differs is reported."""
    lines = ("LimitNOFILE=1024:4096", "LimitCORE=0:infinity", "LimitAS=1G:1G", "LimitCPU=10min", "LimitSTACK=8M")
    outcome, definition = service(tmp_path, *lines, "LimitNOFILE=512:8192", "LimitNPROC=infinity")
    assert definition["limits"] == {
        "nofile": 8192,
        "core": "unlimited",
        "address_space": "1gb",
        "cpu_time": "600s",
        "stack": "8mb",
    }
    for words in ("LimitNOFILE=512:8192", "LimitCORE=0:infinity: both limits are infinity", "LimitNPROC=infinity"):
        assert mentions(outcome, words)
    assert not mentions(outcome, "LimitAS")


def test_repeated_settings(tmp_path: Path) -> None:
    """Each value of a repeated setting that is not converted is reported."""
    outcome, _ = service(tmp_path, "ReadWritePaths=/a", "ReadWritePaths=/b", "ExecStop=/bin/x", "ExecStop=/bin/y")
    for line in ("ReadWritePaths=/a", "ReadWritePaths=/b", "ExecStop=/bin/x", "ExecStop=/bin/y"):
        assert mentions(outcome, line)
    outcome = Outcome()
    timer = "[Timer]\nOnUnitActiveSec=1h\nOnUnitInactiveSec=2h\n"
    systemd.read({"a.service": "[Service]\nExecStart=/bin/a\n", "a.timer": timer}, outcome)
    assert checked(outcome, tmp_path)["a"]["every"] == "3600s"
    assert mentions(outcome, "a.timer", "OnUnitInactiveSec=2h is not converted")


def test_units_of_the_same_name() -> None:
    """Of two files with the same name, the second one is left out and reported."""
    outcome = Outcome()
    systemd.read(
        {"/a/x.service": "[Service]\nExecStart=/bin/a\n", "/b/x.service": "[Service]\nExecStart=/bin/b\n"}, outcome
    )
    assert [unit.keys["run"] for unit in outcome.units] == [["/bin/a"]]
    assert mentions(outcome, "/b/x.service: is left out: /a/x.service has the same name")


def test_notify_access(tmp_path: Path) -> None:
    """A restriction of the processes that may send notifications is reported."""
    assert mentions(service(tmp_path, "Type=notify", "NotifyAccess=main")[0], "NotifyAccess=main")
    assert not mentions(service(tmp_path, "Type=notify", "NotifyAccess=all")[0], "NotifyAccess")
    assert not mentions(service(tmp_path, "NotifyAccess=main")[0], "NotifyAccess")


@pytest.mark.parametrize(("persistent", "noted"), [("", True), ("no", True), ("y", False), ("T", False), ("on", False)])
def test_timers_after_a_suspend(tmp_path: Path, persistent: str, noted: bool) -> None:
    """A timer that is not persistent has a note, because systemd runs it after a suspend nevertheless."""
    outcome = Outcome()
    timer = f"[Timer]\nOnCalendar=daily\nPersistent={persistent}\n"
    systemd.read({"a.service": "[Service]\nExecStart=/bin/a\n", "a.timer": timer}, outcome)
    assert ("catch_up" in checked(outcome, tmp_path)["a"]) == noted
    assert mentions(outcome, "a.timer", "after a suspend") == noted
    assert not outcome.lost


def test_environment(tmp_path: Path) -> None:
    """A file overrides Environment, as under systemd, and a name without a value is ignored."""
    file = tmp_path / "env"
    file.write_text("A=file\n")
    file.chmod(0o600)
    outcome, definition = service(tmp_path, "Environment=A=unit B=unit C", f"EnvironmentFile={file}")
    assert (definition["env"], definition["env_file"]) == ({"B": "unit"}, [str(file)])
    outcome = Outcome()
    text = f"[Service]\nExecStart=/bin/a\nEnvironment=A=unit\nEnvironmentFile={tmp_path}/none\n"
    systemd.read({"one.service": text}, outcome)
    assert mentions(outcome, "overrides Environment under systemd")


def test_order(tmp_path: Path) -> None:
    """The order of services is mentioned, and that of targets is not."""
    outcome, _ = service(tmp_path, unit="After=network.target db.service")
    assert mentions(outcome, "After=db.service")
    assert not mentions(outcome, "network.target")


def test_services_that_nothing_starts(tmp_path: Path) -> None:
    """A service that no boot target wants has a note, because Ringward starts it with the daemon."""
    outcome = Outcome()
    systemd.read({"one.service": "[Service]\nExecStart=/bin/one\n"}, outcome)
    assert mentions(outcome, "one.service", "autostart = false")
    assert not mentions(service(tmp_path)[0], "autostart")


def test_comments_are_in_the_unit(tmp_path: Path) -> None:
    """Settings not converted are listed directly above the table of the unit."""
    outcome, _ = service(tmp_path, "ProtectHome=yes", "TimeoutStopSec=1")
    lines = outcome.toml("a test").splitlines()
    assert lines[lines.index("[services.one]") - 1] == "# CHECK: ProtectHome=yes is not converted"
