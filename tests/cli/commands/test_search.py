"""``ringward search``."""

import json
from typing import Any

import pytest

from supervisor.cli import exit_codes
from tests.support.command_line import Ringward
from tests.support.fake_daemon import Answer, FakeDaemon, Request, as_json, line, problem

RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
PATH = "/api/tasks/job/log/search"


def result_page(*texts: str, cursor: str | None = None, first: int = 0) -> dict[str, Any]:
    items = [{"runId": RUN, **line(n, text)} for n, text in enumerate(texts, first)]
    end = {} if cursor is None else {"nextCursor": cursor}
    return {"items": items, "exhausted": cursor is None, "scannedRuns": 1, "scannedBytes": 1, **end}


def test_lines_with_their_position(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A pipe gets each line with its position, and the text unchanged."""
    daemon.on("GET", PATH, result_page("one \x1b[31mred", "two"))
    result = ringward("search", "job", "o")
    assert (result.exit_code, result.stdout) == (0, f"{RUN}:0: one \x1b[31mred\n{RUN}:1: two\n")
    assert daemon.requests_to(PATH)[0].query == {"q": "o", "case": "true", "limit": "1000"}


def test_nothing_found(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A search without a match exits with 1, as grep does."""
    daemon.on("GET", PATH, result_page(cursor="c"), result_page())
    result = ringward("search", "job", "o")
    assert (result.exit_code, result.output) == (1, "")
    assert [request.query.get("cursor") for request in daemon.requests_to(PATH)] == [None, "c"]


def test_options(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Each option becomes a parameter of the request."""
    daemon.on("GET", PATH, result_page("a"))
    options = ("--regex", "-i", "--raw", "--stream", "stderr", "--run", RUN.lower(), "-n", "7")
    assert ringward("search", *options, "job", "--", "-a|b").exit_code == 0
    assert daemon.requests_to(PATH)[0].query == {
        "q": "-a|b",
        "regex": "true",
        "raw": "true",
        "stream": "stderr",
        "runId": RUN,
        "limit": "8",
    }


def test_all_logs(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Without a name, or with several, all logs are searched, and each line begins with the name of its unit."""
    page = result_page("one")
    page["items"][0]["taskName"] = "web"
    daemon.on("GET", "/api/logs/search", page)
    calls = []
    for words in (("o",), ("web", "j*", "o"), ("--group", "g", "--since", "2026-11-20T00:00:00Z", "o")):
        result = ringward("search", *words)
        assert (result.exit_code, result.stdout) == (0, f"web {RUN}:0: one\n")
        query = daemon.requests_to("/api/logs/search")[-1].query
        calls.append({name: value for name, value in query.items() if name not in ("q", "case", "limit")})
    assert calls == [{}, {"task": "web,j*"}, {"group": "g", "since": "2026-11-20T00:00:00.000Z"}]


def test_run_without_its_task(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A run can be searched without its task's name."""
    daemon.on("GET", f"/api/runs/{RUN}", {"id": RUN, "taskName": "job"})
    daemon.on("GET", PATH, result_page("a"))
    assert ringward("search", "--run", RUN, "a").stdout == f"{RUN}:0: a\n"
    assert ringward("search", "--run", RUN, "x", "y", "a").exit_code == exit_codes.USAGE


def test_pages_until_the_limit(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The command prints the requested number of lines, with any page size, and reports that there are more."""

    def answer(request: Request) -> Answer:
        first = int(request.query.get("cursor", 0))
        count = min(700, int(request.query["limit"]))
        return as_json(result_page(*["x"] * count, cursor=str(first + count), first=first))

    daemon.on("GET", PATH, answer)
    result = ringward("search", "job", "x", "-n", "1500")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"{RUN}:{n}: x" for n in range(1500)]
    assert "more than 1500" in result.stderr
    daemon.on("GET", PATH, result_page("x", "x"))
    assert ringward("search", "job", "x", "-n", "2").stderr == ""


def test_json(ringward: Ringward, daemon: FakeDaemon) -> None:
    """With --json, each line is one record of the API."""
    daemon.on("GET", PATH, result_page("a", "b"))
    lines = ringward("search", "job", "x", "--json").stdout.splitlines()
    assert [json.loads(log_line) for log_line in lines] == result_page("a", "b")["items"]


@pytest.mark.parametrize(
    ("options", "pattern", "shown"),
    [
        ((), "lo", "hel\x1b[1;31mlo\x1b[0m ^G Lo"),
        (("-i",), "LO", "hel\x1b[1;31mlo\x1b[0m ^G \x1b[1;31mLo\x1b[0m"),
        (("--regex",), "^h|o$", "\x1b[1;31mh\x1b[0mello ^G L\x1b[1;31mo\x1b[0m"),
        (("--regex",), "^hel+o ", "\x1b[1;31mhello \x1b[0m^G Lo"),
        (("--regex",), "(", "hello ^G Lo"),
    ],
)
def test_colours_on_a_terminal(
    ringward: Ringward,
    daemon: FakeDaemon,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    pattern: str,
    shown: str,
) -> None:
    """Matches are coloured, the line's own escape sequences are removed, and control characters are made visible."""
    daemon.on("GET", PATH, result_page("\ufeffhel\x1b[31mlo\x1b[0m \x1b]0;x\x07\x07 Lo"))
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    result = ringward("search", *options, "job", pattern)
    assert result.stdout == f"\x1b[36m{RUN}:0:\x1b[0m {shown}\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert ringward("search", *options, "job", pattern).stdout == f"{RUN}:0: hello ^G Lo\n"


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (problem(404, "No task"), exit_codes.REFUSED, 'no task, service or run named "job" (did you mean "jobs"?)'),
        (
            problem(422, "Not valid: query.q", [{"location": "query.q", "message": "missing )"}]),
            exit_codes.USAGE,
            "PATTERN: missing )",
        ),
        (problem(414, "Request Line is too large"), exit_codes.USAGE, "the arguments are too long"),
        (problem(503, "Too many concurrent searches; try again later"), exit_codes.UNREACHABLE, "Too many"),
    ],
)
def test_refusals(ringward: Ringward, daemon: FakeDaemon, answer: Answer, code: int, message: str) -> None:
    """An invalid pattern is a usage error; refusals print nothing to standard output."""
    daemon.on("GET", PATH, answer)
    daemon.on("GET", "/api/tasks", {"items": [{"name": "jobs", "kind": "task"}]})
    result = ringward("search", "job", "(", "--regex")
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_usage_errors(ringward: Ringward) -> None:
    """Invalid arguments are usage errors without a request to the daemon."""
    for arguments in ((), ("job", "a", "-n", "0"), ("job", "a", "--stream", "x"), ("job", "a\udcff")):
        assert ringward("search", *arguments).exit_code == exit_codes.USAGE
