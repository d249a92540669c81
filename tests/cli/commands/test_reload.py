import json
from pathlib import Path

import pytest

from tests.support.command_line import Ringward
from tests.support.fake_daemon import FakeDaemon, as_json

PATH = "/api/daemon/reload"
NOTHING: dict[str, list[str]] = {"added": [], "changed": [], "removed": [], "warnings": []}
REPORT = {
    "added": ["a"],
    "changed": [
        {"name": "b", "reasons": ["run: 2 instances are restarted, one after the other", "tags: applies at once"]}
    ],
    "removed": ["c"],
    "warnings": ["c is removed: 1 run continues to its end"],
}
VALUE = {"file": "/x/ringward.toml", "line": 3, "key": "tasks.x.rum", "message": "unknown key"}
REFUSAL = {
    "title": "Problem",
    "detail": "The configuration is invalid: 1 problem",
    "errors": [
        {"location": "/x/ringward.toml:3: tasks.x.rum", "message": 'unknown key\n  did you mean "run"?', "value": VALUE}
    ],
}


def test_report(daemon: FakeDaemon, ringward: Ringward) -> None:
    """The output lists each name with its change; warnings go to standard error."""
    daemon.on("POST", PATH, REPORT)
    result = ringward("reload")
    assert result.exit_code == 0
    assert result.stdout == (
        "added    a\n"
        "changed  b\n"
        "           run: 2 instances are restarted, one after the other\n"
        "           tags: applies at once\n"
        "removed  c\n"
    )
    assert result.stderr == "ringward: c is removed: 1 run continues to its end\n"
    assert daemon.requests[-1].query == {}


def test_changed_socket(ringward: Ringward, tmp_path: Path) -> None:
    """If no daemon answers at the configured socket, the error says that the change needs a restart."""
    path = tmp_path / "ringward.toml"
    path.write_text('[http]\nsocket = "other.sock"\n')
    path.chmod(0o644)
    result = ringward("reload", "--config", str(path), plain=True)
    assert (result.exit_code, "needs a restart" in result.stderr) == (69, True)


def test_dry_run(daemon: FakeDaemon, ringward: Ringward) -> None:
    """A dry run prints the same report and says that nothing was changed."""
    daemon.on("POST", PATH, REPORT)
    result = ringward("reload", "--dry-run")
    assert result.stdout.endswith("removed  c\nnothing was changed\n")
    assert daemon.requests[-1].query == {"dry_run": "true"}


def test_no_changes(daemon: FakeDaemon, ringward: Ringward) -> None:
    """A reload without changes says so."""
    daemon.on("POST", PATH, NOTHING)
    assert ringward("reload").stdout == "nothing has changed\n"


def test_json(daemon: FakeDaemon, ringward: Ringward) -> None:
    """With --json, the command prints the report, or the problems in the format of validate."""
    daemon.on("POST", PATH, {**REPORT, "$schema": "x"}, as_json(REFUSAL, 422))
    assert json.loads(ringward("reload", "--json").stdout) == REPORT
    refused = ringward("reload", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)) == (78, {"valid": False, "problems": [VALUE]})


@pytest.mark.parametrize(("status", "code"), [(422, 78), (409, 1)])
def test_refusal(daemon: FakeDaemon, ringward: Ringward, status: int, code: int) -> None:
    """A refusal is shown as validate shows it; a valid file that needs a restart has its own exit code."""
    daemon.on("POST", PATH, as_json(REFUSAL, status))
    result = ringward("reload")
    assert result.exit_code == code
    assert result.stderr == '/x/ringward.toml:3: tasks.x.rum: unknown key\n  did you mean "run"?\n1 problem\n'


def test_invalid_data_dir(ringward: Ringward, tmp_path: Path) -> None:
    """A file with an unreadable data_dir is reported like any other invalid file."""
    path = tmp_path / "ringward.toml"
    path.write_text("[daemon]\ndata_dir = /srv\n")
    path.chmod(0o600)
    result = ringward("reload", "--config", str(path), plain=True)
    assert result.exit_code == 78
    assert f"{path}:2" in result.stderr
