"""Regular expressions that take a backtracking engine exponential time."""

from urllib.parse import urlencode

import pytest

from logring.layout import STDOUT
from store.runs.ids import new_ulid
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run

# Each of them doubles the work of a backtracking engine with every letter of the line.
_ENDLESS = ("^(a+)+$", "^(a|aa)+$", "^(a|a?)+$", "^([a-zA-Z]+)*$", "^(.*a){20}b$")
_TOO_LARGE = ("((a{100}){100}){100}", "a{100000}", "(" * 1200 + "a" + ")" * 1200)


def _search(pattern: str, task: str) -> str:
    return f"/api/tasks/{task}/log/search?{urlencode({'q': pattern, 'regex': 'true'})}"


@pytest.mark.parametrize("pattern", _ENDLESS)
def test_explosive_patterns(daemon: Daemon, pattern: str) -> None:
    """Search takes linear time: it ends even for patterns on which backtracking would explode."""
    task = f"redos-{new_ulid(1)}"
    run = daemon.insert(make_run(task=task, status="running", started_at=1))
    daemon.log_of(run, file_blocks=64).write(b"a" * 15_000 + b"!\n", STDOUT, 1000)
    answer = daemon.get(_search(pattern, task))
    assert answer.status == 200
    assert answer.json["items"] == []
    assert answer.json["exhausted"] is True


@pytest.mark.parametrize("pattern", _TOO_LARGE, ids=["nested", "repeated", "deep"])
def test_oversized_patterns(daemon: Daemon, pattern: str) -> None:
    """A pattern whose compiled program would be too large is refused, with the name of the parameter."""
    answer = daemon.get(_search(pattern, "job"))
    assert answer.status == 422
    assert [error["location"] for error in answer.json["errors"]] == ["query.q"]
