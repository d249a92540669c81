"""Details of supervisord programs: numbers, expansions, stops."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

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
    outcome, definition = program(tmp_path, command, *lines, "environment=PORT=1%(process_num)s")
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


def test_stopwaitsecs(tmp_path: Path) -> None:
    """A stopwaitsecs longer than the daemon's shutdown_timeout is reported."""
    outcome, definition = program(tmp_path, "command=x", "stopwaitsecs=600")
    assert definition["graceful_stop"] == "600s"
    assert outcome.lost
    assert mentions(outcome, "[program:one]", "shutdown_timeout", "600s")
    assert not program(tmp_path, "command=x", "stopwaitsecs=8")[0].notes
    assert not program(tmp_path, "command=x")[0].lost


def test_stop_target(tmp_path: Path) -> None:
    """The stop signal goes only to the main process unless stopasgroup is true."""
    assert program(tmp_path, "command=x")[1]["stop_target"] == "main"
    assert "stop_target" not in program(tmp_path, "command=x", "stopasgroup=true")[1]


@pytest.mark.parametrize("line", ["stopasgroup=maybe", "numprocs_start=x", "environment=A='open"])
def test_values_of_the_wrong_kind(line: str) -> None:
    """A program with an invalid value is reported and does not affect other programs."""
    outcome = Outcome()
    supervisord.read("s.conf", f"[program:one]\ncommand=x %(process_num)d\n{line}\n[program:two]\ncommand=y\n", outcome)
    assert [unit.name for unit in outcome.units] == ["two"]
    assert mentions(outcome, "[program:one]", "is not carried over")


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
