"""Details of supervisord programs: numbers, expansions, stops."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.config.problems import ConfigError
from supervisor.tools.importers import supervisord
from supervisor.tools.importers.import_result import Outcome
from tests.tools.importers.imported import checked, mentions


def program(tmp_path: Path, *lines: str) -> tuple[Outcome, dict[str, Any]]:
    outcome = Outcome()
    supervisord.read("s.conf", "\n".join(("[program:one]", *lines, "")), outcome)
    return outcome, checked(outcome, tmp_path)["one"]


def printed(run: str, **variables: str) -> str:
    """Return the output of a command that is started as the daemon would start it."""
    env = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(["/bin/sh", "-e", "-c", run], env=env, capture_output=True, text=True, check=True).stdout


def test_process_numbers(tmp_path: Path) -> None:
    """The number of a process begins with numprocs_start, in the command and in variables."""
    lines = ("numprocs=4", "numprocs_start=8300", "process_name=%(program_name)s_%(process_num)d")
    command = 'command=sh -c "echo $PORT $0 $1 $2" --port=%(process_num)d %(process_num)06d of-%(numprocs)d'
    more = ("environment=PORT=1%(process_num)s", "autorestart=true")
    outcome, definition = program(tmp_path, command, *lines, *more)
    assert definition["instances"] == 4
    assert printed(definition["run"], RINGWARD_INSTANCE="2") == "18302 --port=8302 008302 of-4\n"
    assert not outcome.lost


def test_expansions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the daemon become references, and the host name is determined at the start."""
    monkeypatch.setenv("BASE", "/srv")
    monkeypatch.delenv("MISSING", raising=False)
    lines = (
        "environment=A=%(ENV_BASE)s/x,B=%(host_node_name)s,C=${literal},D=%(ENV_MISSING)s",
        "directory=%(ENV_BASE)s",
    )
    outcome, definition = program(tmp_path, 'command=sh -c "echo $B $0" %(host_node_name)s', *lines)
    assert definition["env"] == {"A": "${BASE}/x", "C": "$${literal}", "D": "${MISSING:-}"}
    assert definition["working_dir"] == "${BASE}"
    host = subprocess.run(["uname", "-n"], capture_output=True, text=True).stdout.strip()
    assert printed(definition["run"]) == f"{host} {host}\n"
    assert mentions(outcome, "MISSING")
    outcome, definition = program(tmp_path, "command=x", "directory=/srv/%(host_node_name)s")
    assert "working_dir" not in definition
    assert mentions(outcome, "directory = /srv/%(host_node_name)s")


def test_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of supervisord, which programs inherit, may begin with ~; for that of a program, ~ is an error."""
    monkeypatch.setenv("HOME", "/home/me")
    _, definition = program(tmp_path, "command=x", "[supervisord]", "directory=~/base")
    assert definition["working_dir"] == "/home/me/base"
    with pytest.raises(ConfigError, match="has a ~, which is not expanded"):
        program(tmp_path, "command=x", "directory=~/there")


def test_environment(tmp_path: Path) -> None:
    """Variables are separated as in supervisord: backslashes stay, and a comma, a blank or a sign needs quotes."""
    lines = ('environment=A="a, b=c",B=\'x\',C="\\n\\\\",', "  D=/srv:/x+y-1.0,", '  E=""')
    _, definition = program(tmp_path, "command=x", *lines)
    assert definition["env"] == {"A": "a, b=c", "B": "x", "C": "\\n\\\\", "D": "/srv:/x+y-1.0", "E": ""}


def test_stopwaitsecs(tmp_path: Path) -> None:
    """A stopwaitsecs longer than the daemon's shutdown_timeout is reported."""
    outcome, definition = program(tmp_path, "command=x", "stopwaitsecs=600")
    assert definition["graceful_stop"] == "600s"
    assert outcome.lost
    assert mentions(outcome, "[program:one]", "shutdown_timeout", "600s")
    assert not program(tmp_path, "command=x", "stopwaitsecs=8", "autorestart=true")[0].notes
    assert not program(tmp_path, "command=x", "autorestart=true")[0].lost


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("15", "SIGTERM"),
        ("quit", "SIGQUIT"),
        ("SIGINT", "SIGINT"),
        ("sigUSR1", "SIGUSR1"),
        ("40", "SIGRTMIN+6"),
        ("RTMAX-1", "SIGRTMIN+29"),
    ],
)
def test_signals(tmp_path: Path, text: str, name: str) -> None:
    """A signal can be a number, or a name in any spelling."""
    assert program(tmp_path, "command=x", f"stopsignal={text}")[1]["stop_signal"] == name


def test_unknown_signal(tmp_path: Path) -> None:
    """A signal that does not exist is reported."""
    for text in ("99", "SIGNOTHING", "0"):
        outcome, definition = program(tmp_path, "command=x", f"stopsignal={text}")
        assert "stop_signal" not in definition
        assert mentions(outcome, f"stopsignal = {text} is not converted")


@pytest.mark.parametrize(
    ("text", "restart"),
    [
        *((text, "always") for text in ("1", "Yes", "TRUE", "on")),
        *((text, "never") for text in ("0", "No", "FALSE", "off")),
        ("Unexpected", "on_failure"),
    ],
)
def test_booleans(tmp_path: Path, text: str, restart: str) -> None:
    """A boolean can be spelled as in supervisord, for autorestart, too."""
    assert program(tmp_path, "command=x", f"autorestart={text}")[1]["restart"] == restart


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), "exit code 0 within startsecs (1s) is a failure there"),
        (("startsecs=5",), "exit code 0 within startsecs (5s) is a failure there"),
        (("autorestart=false",), "an exit within startsecs (1s) starts the program again there"),
        (("autorestart=true",), None),
        (("startsecs=0",), None),
    ],
)
def test_quick_exits(tmp_path: Path, lines: tuple[str, ...], words: str | None) -> None:
    """An exit within startsecs, which supervisord counts as a failed start whatever its code, is reported."""
    outcome, _ = program(tmp_path, "command=x", *lines)
    assert not outcome.lost if words is None else mentions(outcome, words)


def test_sections(tmp_path: Path) -> None:
    """Blanks around a name do not count, and a section that is there twice is reported."""
    outcome = Outcome()
    text = "[program: one ]\ncommand=x %(program_name)s\n[program:two]\ncommand=y\n[group: g ]\nprograms=two\n"
    supervisord.read("s.conf", f"{text}[program:two]\nstopsignal=INT\n", outcome)
    units = checked(outcome, tmp_path)
    assert units["one"]["run"] == ["x", "one"]
    assert (units["two"]["group"], units["two"]["stop_signal"]) == ("g", "SIGINT")
    assert mentions(outcome, "s.conf [program:two]: occurs more than once")


def test_stop_target(tmp_path: Path) -> None:
    """The stop signal goes only to the main process unless stopasgroup is true."""
    assert program(tmp_path, "command=x")[1]["stop_target"] == "main"
    assert "stop_target" not in program(tmp_path, "command=x", "stopasgroup=true")[1]


@pytest.mark.parametrize("line", ["stopasgroup=maybe", "numprocs_start=x", "environment=A='open", "environment=A=1,B"])
def test_values_of_the_wrong_kind(line: str) -> None:
    """A program with an invalid value is reported and does not affect other programs."""
    outcome = Outcome()
    supervisord.read("s.conf", f"[program:one]\ncommand=x %(process_num)d\n{line}\n[program:two]\ncommand=y\n", outcome)
    assert [unit.name for unit in outcome.units] == ["two"]
    assert mentions(outcome, "[program:one]", "is not converted")


def test_backslash_in_numprocs() -> None:
    """A numprocs that is not a number is reported."""
    outcome = Outcome()
    supervisord.read("s.conf", "[program:one]\ncommand=x %(numprocs)d\nnumprocs=\\u\\1\n", outcome)
    assert mentions(outcome, "numprocs = \\u\\1")


def test_output_elsewhere(tmp_path: Path) -> None:
    """Output that goes to syslog or creates events is reported."""
    outcome, _ = program(tmp_path, "command=x", "stdout_syslog=true", "stderr_events_enabled=false")
    assert mentions(outcome, "stdout_syslog")
    assert not mentions(outcome, "stderr_events_enabled")
