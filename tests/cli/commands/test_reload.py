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


def test_what_was_done(daemon: FakeDaemon, ringward: Ringward) -> None:
    """Each name with what happens to it; warnings go to standard error."""
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


def test_a_socket_that_is_another_one_now(ringward: Ringward, tmp_path: Path) -> None:
    """No daemon is at the place that the file names: it may have started with another file."""
    path = tmp_path / "ringward.toml"
    path.write_text('[http]\nsocket = "other.sock"\n')
    path.chmod(0o644)
    result = ringward("reload", "--config", str(path), plain=True)
    assert (result.exit_code, "needs a restart" in result.stderr) == (69, True)


def test_a_dry_run(daemon: FakeDaemon, ringward: Ringward) -> None:
    """The same, asked for as such, and it says that nothing was changed."""
    daemon.on("POST", PATH, REPORT)
    result = ringward("reload", "--dry-run")
    assert result.stdout.endswith("removed  c\nnothing was changed\n")
    assert daemon.requests[-1].query == {"dry_run": "true"}


def test_nothing_to_do(daemon: FakeDaemon, ringward: Ringward) -> None:
    """Is said."""
    daemon.on("POST", PATH, NOTHING)
    assert ringward("reload").stdout == "nothing has changed\n"


def test_json(daemon: FakeDaemon, ringward: Ringward) -> None:
    """The report, or the problems as validate prints them."""
    daemon.on("POST", PATH, {**REPORT, "$schema": "x"}, as_json(REFUSAL, 422))
    assert json.loads(ringward("reload", "--json").stdout) == REPORT
    refused = ringward("reload", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)) == (78, {"valid": False, "problems": [VALUE]})


@pytest.mark.parametrize(("status", "code"), [(422, 78), (409, 1)])
def test_a_refusal(daemon: FakeDaemon, ringward: Ringward, status: int, code: int) -> None:
    """As validate shows it; a file that is valid, but needs another daemon, has another exit code."""
    daemon.on("POST", PATH, as_json(REFUSAL, status))
    result = ringward("reload")
    assert result.exit_code == code
    assert result.stderr == '/x/ringward.toml:3: tasks.x.rum: unknown key\n  did you mean "run"?\n1 problem\n'


def test_a_file_that_does_not_even_say_where_the_daemon_is(ringward: Ringward, tmp_path: Path) -> None:
    """A file whose data_dir cannot be read is as invalid as any other."""
    path = tmp_path / "ringward.toml"
    path.write_text("[daemon]\ndata_dir = /srv\n")
    path.chmod(0o600)
    result = ringward("reload", "--config", str(path), plain=True)
    assert result.exit_code == 78
    assert f"{path}:2" in result.stderr
