"""Regular expressions in the real daemon without google-re2: other processes match, and no pattern hangs anything."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest

from tests.support.daemon import Daemon
from tests.support.lean import environment
from tests.support.lent import Lent
from tests.support.waiting import until

SLOW = "(a|a)*b"
"""A pattern that takes exponential time in Python's engine."""
LINE = "a" * 40
TOO_LONG = "matching took more than 1 s of processor time; use a simpler pattern, or install google-re2"


class WithoutRe2(Lent):
    """A daemon in an environment without google-re2."""

    def command(self) -> list[str]:
        return [str(environment("google-re2") / "bin" / "ringward")]

    def client_command(self) -> list[str]:
        return self.command()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithoutRe2]:
    daemon = WithoutRe2(tmp_path_factory.mktemp("without-re2"))
    yield daemon
    daemon.clean()


@pytest.fixture
def without_matchers(tmp_path: Path) -> Iterator[WithoutRe2]:
    """A daemon of its own for a test that counts matching processes."""
    daemon = WithoutRe2(tmp_path)
    yield daemon
    daemon.clean()


@pytest.fixture
def without_re2(shared: WithoutRe2) -> Iterator[WithoutRe2]:
    """The daemon without google-re2, without runs."""
    yield shared
    shared.take_back()


def matchers(daemon: Daemon) -> list[psutil.Process]:
    return [child for child in psutil.Process(daemon.pid).children(recursive=True) if child.name() == "ringward matche"]


def search(daemon: Daemon, **query: Any) -> Any:
    answer = daemon.get(f"/api/logs/search?{urlencode(query)}")
    assert answer.status == 200, answer.body
    return answer.json()


def test_search(without_matchers: Daemon) -> None:
    """A search finds the same lines. If a match takes too long, the answer says that the search was cut."""
    daemon = without_matchers
    daemon.write(f'[tasks.t]\nrun = "echo Error one; echo {LINE}; echo ÄPFEL; echo error two"\n')
    daemon.start()
    assert daemon.ended(daemon.trigger("t"))["endReason"] == "succeeded"
    assert not matchers(daemon)
    assert [hit["text"] for hit in search(daemon, q="ERROR")["items"]] == ["Error one", "error two"]
    assert [hit["text"] for hit in search(daemon, q="äpfel")["items"]] == ["ÄPFEL"]
    assert [hit["n"] for hit in search(daemon, q="^error [a-z]+$", regex="true", case="true")["items"]] == [3]
    assert [hit["n"] for hit in search(daemon, q="^a+$|one$", regex="true")["items"]] == [0, 1]
    cut = search(daemon, q=SLOW, regex="true")
    assert (cut["cut"], cut["exhausted"], "nextCursor" in cut) == (TOO_LONG, False, False)
    assert search(daemon, q="two$", regex="true")["exhausted"]
    shown = daemon.cli("search", SLOW, "--regex")
    assert (shown.returncode, shown.stderr) == (1, f"ringward: the search ended early: {TOO_LONG}\n")
    assert daemon.cli("search", "^error", "--regex").stdout.endswith(":3: error two\n")
    answer = daemon.get(f"/api/logs/search?{urlencode({'q': '[0-9]+(?=a)', 'regex': 'true'})}")
    assert answer.status == 422
    assert answer.json()["errors"][0]["message"] == "(?=, a lookahead, at position 6 is not supported"


def test_killed_matching_process(without_matchers: Daemon) -> None:
    """A matching process that is killed is replaced, and the search does not notice."""
    daemon = without_matchers
    daemon.write('[tasks.t]\nrun = "echo Error one"\n')
    daemon.start()
    daemon.ended(daemon.trigger("t"))
    assert search(daemon, q="one$", regex="true")["items"]
    (process,) = matchers(daemon)
    process.kill()
    assert search(daemon, q="one$", regex="true")["items"]
    (another,) = matchers(daemon)
    assert another != process


def test_stream(without_re2: Daemon) -> None:
    """A stream has the lines that match; if a match takes too long, it ends, and its last event says why."""
    daemon = without_re2
    daemon.write(f'[tasks.t]\nrun = "echo Error one; echo no; echo error two"\n[tasks.u]\nrun = "echo {LINE}"\n')
    daemon.start()
    for name in ("t", "u"):
        daemon.ended(daemon.trigger(name))
    shown = daemon.cli("logs", "t", "u", "--grep", "^error|one$")
    assert [line.split()[-1] for line in shown.stdout.splitlines()] == ["one", "two"]
    shown = daemon.cli("logs", "t", "u", "--grep", SLOW)
    assert shown.returncode == 1
    assert f"ringward: the logs end early: {TOO_LONG}" in shown.stderr


def test_parameters(without_re2: Daemon) -> None:
    """A parameter is accepted or refused by its pattern, also in the default; it is refused if that takes too long."""
    daemon = without_re2
    daemon.write(
        '[tasks.t]\nrun = "echo"\n'
        f'params = [{{ name = "P", kind = "arg", pattern = "{SLOW}|[x-z]{{2}}|", default = "yz" }}]\n'
        '[tasks.retried]\nrun = "echo; exit 3"\nretry_attempts = 1\nretry_delay = "0s"\n'
        'params = [{ name = "P", kind = "arg", pattern = "[x-z]{2}" }]\n'
    )
    daemon.start()

    def given(task: str, value: str) -> tuple[int, str]:
        answer = daemon.request("POST", f"/api/tasks/{task}/run?wait=60", {"params": {"P": value}})
        return answer.status, json.dumps(answer.json())

    assert given("t", "xy")[0] == 201
    assert given("t", "xyz")[0] == 422
    status, text = given("t", LINE)
    assert (status, TOO_LONG in text) == (422, True)
    run = daemon.trigger("t")
    assert daemon.ended(run)["endReason"] == "succeeded"
    assert given("retried", "xy")[0] == 201
    until(lambda: [run.get("endReason") for run in daemon.runs("retried")] == ["failed"] * 2, "its retry")
    assert {run["exitCode"] for run in daemon.runs("retried")} == {3}
    daemon.config.write_text(daemon.config.read_text().replace('default = "yz"', f'default = "{LINE}"'))
    shown = daemon.cli("reload")
    assert shown.returncode == 78
    assert TOO_LONG in shown.stderr


def test_failure_output(without_re2: Daemon, tmp_path: Path) -> None:
    """A matching line fails a run; a run whose output cannot be searched in time fails too, and its log says why."""
    daemon = without_re2
    flag = tmp_path / "flag"
    daemon.write(
        '[tasks.bad]\nrun = "echo fine; echo fatal: no disk"\nfailure_output = "^(ERROR|fatal):"\n'
        '[tasks.good]\nrun = "echo fine; echo not fatal: no disk"\nfailure_output = "^(ERROR|fatal):"\n'
        f'[tasks.slow]\nrun = "echo {LINE}; while ! test -e {flag}; do sleep 0.05; done"\nfailure_output = "{SLOW}"\n'
        f'[tasks.brief]\nrun = "echo {LINE}"\nfailure_output = "{SLOW}"\n'
    )
    daemon.start()
    slow = daemon.trigger("slow")
    note = f"the run counts as failed: its output cannot be searched for failure_output: {TOO_LONG}"
    until(lambda: note in daemon.texts(slow, "system"), "the line of the daemon")
    assert [line["stream"] for line in daemon.lines(slow)] == ["stdout", "system"]
    ended = {name: daemon.ended(daemon.trigger(name)) for name in ("bad", "good", "brief")}
    assert {name: (run["endReason"], run["exitCode"]) for name, run in ended.items()} == {
        "bad": ("failed", 0),
        "good": ("succeeded", 0),
        "brief": ("failed", 0),
    }
    flag.touch()
    run = daemon.ended(slow)
    assert (run["endReason"], run["exitCode"]) == ("failed", 0)
    assert f"failed: its output cannot be searched for failure_output: {TOO_LONG}" in daemon.own_output()


def test_readiness(without_re2: Daemon) -> None:
    """A service is ready once a line matches; probes by commands, which end leftovers, spare the matching process.

    If a match takes too long, the service does not become ready, and its record says why.
    """
    daemon = without_re2
    daemon.write(
        '[services.s]\nrun = "echo listening on port 80; exec sleep 600"\nready = { log = "^listening .* [0-9]+$" }\n'
        '[services.e]\nrun = "exec sleep 600"\nready = { exec = "true", every = "50ms" }\n'
        'live = { exec = "true", every = "50ms" }\n'
        f'[services.slow]\nrun = "echo {LINE}; exec sleep 600"\nready = {{ log = "{SLOW}" }}\n'
    )
    daemon.start()
    until(lambda: daemon.task("s")["instances"][0]["ready"], "the service to be ready")
    until(lambda: daemon.task("e")["instances"][0]["ready"], "the other service to be ready")
    until(lambda: TOO_LONG in json.dumps(daemon.task("slow")["instances"]), "the reason")
    assert not daemon.task("slow")["instances"][0]["ready"]
