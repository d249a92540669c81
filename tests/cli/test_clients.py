"""The commands that talk to the daemon."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from supervisor.cli import exit_codes
from supervisor.cli.follow import RunFollower
from supervisor.cli.main import cli
from supervisor.cli.tables import duration, relative, show_table
from supervisor.ipc.messages import STARTING
from tests.support.command_line import Ringward
from tests.support.fake_daemon import RUN, Answer, FakeDaemon, Request, as_json, event, events, line, problem, run

OTHER = "01ARZ3NDEKTSV4RRFFQ69G5FAW"


def runs_page(*items: dict[str, Any]) -> Any:
    def answer(request: Request) -> Answer:
        offset, limit = int(request.query["offset"]), int(request.query["limit"])
        return as_json({"items": list(items)[offset : offset + limit], "total": len(items)})

    return answer


def running(daemon: FakeDaemon, *lines: dict[str, Any], **ended: Any) -> None:
    """Serve the task job, whose run prints `lines` and ends with the fields `ended`."""
    daemon.on("POST", "/api/tasks/job/run", as_json({"id": RUN, "status": "pending"}, 201))
    shown = [event("line", log_line, log_line["n"]) for log_line in lines]
    done = event("done", {"finalLine": len(lines) - 1, "status": "ended"}, len(lines) - 1)
    daemon.on("GET", f"/api/runs/{RUN}/log/stream", events(*shown, done))
    daemon.on("GET", f"/api/runs/{RUN}", run(**ended))


class TestRun:
    def test_output_and_exit_code(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """The command prints the run's standard output and standard error separately and exits with its code."""
        running(daemon, line(0, "out"), line(1, "err", "stderr"), endReason="failed", exitCode=3)
        result = ringward("run", "job")
        assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")

    def test_parameters_are_sent(self, ringward: Ringward, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
        """The value follows the first equals sign; a name alone takes the value from the environment."""
        running(daemon)
        monkeypatch.setenv("TOKEN", "s3cret")
        assert ringward("run", "job", "-p", "A=x=y", "--param", "b=", "-p", "TOKEN").exit_code == 0
        sent = next(request.body for request in daemon.requests if request.method == "POST")
        assert json.loads(sent) == {"params": {"A": "x=y", "b": "", "TOKEN": "s3cret"}}

    def test_later_time(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A run for a later time is only requested; standard output has its id, and a message tells the time."""
        running(daemon)
        result = ringward("run", "job", "--at", "2100-01-01 00:00+00:00", "-p", "A=x")
        assert (result.exit_code, result.stdout) == (0, f"{RUN}\n")
        assert result.stderr == "ringward: to start at 2100-01-01T00:00:00.000Z\n"
        (sent,) = [json.loads(request.body) for request in daemon.requests if request.body]
        assert sent == {"params": {"A": "x"}, "run_at": "2100-01-01T00:00:00.000Z"}

    @pytest.mark.parametrize("at", ["2020-01-01", "tomorrow"])
    def test_invalid_time(self, ringward: Ringward, daemon: FakeDaemon, at: str) -> None:
        """A time that has passed, and a text that is no time, are usage errors without a request to the daemon."""
        assert (ringward("run", "job", "--at", at).exit_code, daemon.requests) == (64, [])

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_unknown_trigger_result(self, ringward: Ringward, daemon: FakeDaemon, status: int) -> None:
        """A failure of the daemon or of a proxy exits with 69, because the run may have been triggered."""
        daemon.on("POST", "/api/tasks/job/run", problem(status, f"The run {RUN} was triggered, but"))
        assert ringward("run", "job").exit_code == 69

    @pytest.mark.parametrize("given", [["A=1", "A=1"], ["=1"], [""], ["NOT_THERE"], ["A=\udcff"], ["\udcff=1"]])
    def test_invalid_parameters(self, ringward: Ringward, daemon: FakeDaemon, given: list[str]) -> None:
        """Invalid parameters are usage errors without a request to the daemon."""
        running(daemon)
        result = ringward("run", "job", *(part for text in given for part in ("-p", text)))
        assert (result.exit_code, daemon.requests) == (64, [])

    @pytest.mark.parametrize(
        ("ended", "code", "message"),
        [
            ({"endReason": "succeeded", "exitCode": 0}, 0, ""),
            ({"endReason": "timeout", "exitCode": 143}, 143, "ended: timeout"),
            ({"endReason": "timeout", "exitCode": 0}, 1, "ended: timeout"),
            ({"endReason": "stopped", "exitCode": 137}, 137, "ended: stopped"),
            ({"endReason": "start_failed", "exitCode": -1, "startedAt": None}, 125, "could not start its command"),
            ({"endReason": "skipped", "exitCode": -1, "startedAt": None}, 125, "already running"),
            ({"endReason": "queue_full", "exitCode": -1, "startedAt": None}, 125, "the queue of the task is full"),
            ({"endReason": "stopped", "exitCode": -1, "startedAt": None}, 125, "never started: stopped"),
            ({"endReason": "crashed", "exitCode": -2}, 125, "is unknown: crashed"),
        ],
    )
    def test_exit_code_of_each_ending(
        self, ringward: Ringward, daemon: FakeDaemon, ended: dict[str, Any], code: int, message: str
    ) -> None:
        """The code is 125 with the reason if nothing ran, 1 if an unsuccessful run exited with 0, else the run's."""
        running(daemon, **ended)
        daemon.on("GET", f"/api/runs/{RUN}/ending", {"reason": "skipped", "exitCode": -1})
        result = ringward("run", "job")
        assert result.exit_code == code
        assert message in result.stderr

    def test_condition(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """The reason of the condition is shown if it was not met; a run is not asked for it with --force."""
        running(daemon, endReason="skipped", exitCode=-1, startedAt=None)
        ending = {"reason": "skipped", "exitCode": -1, "endCause": "condition", "requestedBy": "only_if: no disk"}
        daemon.on("GET", f"/api/runs/{RUN}/ending", ending)
        result = ringward("run", "job", "--force")
        assert (result.exit_code, "its condition was not met (only_if: no disk)" in result.stderr) == (125, True)
        (sent,) = [json.loads(request.body) for request in daemon.requests if request.body]
        assert sent == {"force": True}

    @pytest.mark.parametrize(
        ("ending", "message"),
        [
            ({"failureLine": 3}, "failed: line 3 of its log matches failure_output"),
            ({}, "failed: exit code 0 is not in exit_codes"),
            ({"endCause": "too_short"}, "failed: it took less than min_duration"),
        ],
    )
    def test_failed_run_that_exited_with_0(
        self, ringward: Ringward, daemon: FakeDaemon, ending: dict[str, Any], message: str
    ) -> None:
        """A failed run that exited with 0 makes the exit code 1, and the reason is shown."""
        running(daemon, endReason="failed", exitCode=0)
        daemon.on("GET", f"/api/runs/{RUN}/ending", {"reason": "failed", "exitCode": 0, **ending})
        result = ringward("run", "job")
        assert result.exit_code == 1
        assert message in result.stderr

    @pytest.mark.parametrize(
        ("answer", "code", "message"),
        [
            (problem(404, "There is no task"), 125, 'no task named "job"'),
            (problem(409, "job is a service"), 125, "job is a service"),
            (problem(403, "only the schedule may run it"), exit_codes.NOT_PERMITTED, "only the schedule"),
            (
                problem(401, "the client is user 7"),
                exit_codes.NOT_PERMITTED,
                "the client is user 7\nset RINGWARD_PASSWORD",
            ),
            (problem(503, "try later"), exit_codes.UNREACHABLE, "try later"),
            (Answer(301), exit_codes.UNREACHABLE, "status 301"),
        ],
    )
    def test_refused_run(self, ringward: Ringward, daemon: FakeDaemon, answer: Answer, code: int, message: str) -> None:
        """Unknown tasks and services exit with 125; missing permission and a missing daemon have their own codes."""
        daemon.on("POST", "/api/tasks/job/run", answer)
        result = ringward("run", "job")
        assert (result.exit_code, message in result.stderr) == (code, True)

    @pytest.mark.parametrize("names", [["a/b"], ["job", "a/b"]])
    def test_invalid_task_name(self, ringward: Ringward, daemon: FakeDaemon, names: list[str]) -> None:
        """A text that cannot be a name exits with 125, as an unknown task does, and nothing runs."""
        result = ringward("run", *names)
        assert (result.exit_code, result.stderr) == (125, 'ringward: not a name: "a/b"\n')
        assert daemon.requests == []

    def test_detach(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A detached run is not followed: the command prints its id, and still reports a refused run."""
        daemon.on("POST", "/api/tasks/job/run", as_json({"id": RUN, "status": "running"}, 201))
        assert ringward("run", "-d", "job").stdout == f"{RUN}\n"
        assert json.loads(ringward("run", "--detach", "--json", "job").stdout)["id"] == RUN
        assert len(daemon.requests) == 2
        daemon.on("POST", "/api/tasks/job/run", as_json({"id": RUN, "status": "ended"}, 201))
        daemon.on("GET", f"/api/runs/{RUN}", run(endReason="skipped", exitCode=-1, startedAt=None))
        daemon.on("GET", f"/api/runs/{RUN}/ending", {"reason": "skipped", "exitCode": -1})
        assert ringward("run", "-d", "job").exit_code == exit_codes.NEVER_RAN
        assert ringward("run", "--json", "job").exit_code == exit_codes.USAGE

    def test_interrupted_run(self, ringward: Ringward, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C ends the output and not the run, and the command says how to follow or stop it."""

        def interrupted(_self: RunFollower) -> None:
            raise KeyboardInterrupt

        running(daemon)
        monkeypatch.setattr(RunFollower, "follow", interrupted)
        result = ringward("run", "job")
        assert result.exit_code == exit_codes.INTERRUPTED
        assert f"ringward logs -f {RUN}" in result.stderr
        assert f"ringward stop {RUN}" in result.stderr
        assert not [request for request in daemon.requests if request.path.endswith("/stop")]

    def test_result_after_a_restart(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A daemon that restarts between the last line and the request for the result does not change the result."""
        running(daemon)
        daemon.on("GET", f"/api/runs/{RUN}", problem(503, "starting"), run(endReason="failed", exitCode=4))
        assert ringward("run", "job").exit_code == 4


class TestLogs:
    LOG = f"/api/runs/{RUN}/log"
    UNIT_LOG = "/api/tasks/job/log/stream"

    def page(self, total: int) -> Any:
        def answer(request: Request) -> Answer:
            start, limit = int(request.query["from"]), int(request.query["limit"])
            start = max(0, total + start) if start < 0 else start
            lines = [line(n, f"line {n}") for n in range(start, min(start + limit, total))]
            return as_json({"lines": lines, "firstAvailable": 0, "totalLines": total})

        return answer

    def units(self, *lines: str, **run: Any) -> Answer:
        """Return the complete stream of one run with these lines."""
        first = {"r": 0, "runId": RUN, "taskName": "job", "instanceIndex": 0, **run}
        rows = [{"r": 0, **line(n, text)} for n, text in enumerate(lines)]
        return events(event("run", first), event("lines", rows), event("done", {"runs": 1}))

    def test_last_lines_of_a_task(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """The default is the last 100 lines of all runs together, and all lines with a search."""
        daemon.on("GET", self.UNIT_LOG, self.units("a", "b"))
        for arguments in ((), ("-n", "2"), ("-n", "0", "-f"), ("--grep", "x"), ("--stream", "stderr", "-n", "5")):
            assert ringward("logs", "job", *arguments).stdout == "a\nb\n"
        queries = [request.query for request in daemon.requests_to(self.UNIT_LOG)]
        assert [query["from"] for query in queries] == ["-100", "-2", "1", "0", "-5"]
        assert [query.get("follow") for query in queries] == ["false", "false", None, "false", "false"]
        assert (queries[3]["grep"], queries[4]["stream"]) == ("x", "stderr")

    def test_labels_of_several_units(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """Lines of several units have aligned labels, with the instance index where a service has several."""
        service = {"name": "web", "kind": "service", "tags": [], "instances": [{"index": 0}, {"index": 1}]}
        tasks = [{"name": "job", "kind": "task", "tags": []}, service]
        daemon.on("GET", "/api/tasks", {"items": tasks})
        daemon.on("GET", "/api/tasks/web", service)
        daemon.on("GET", "/api/logs/stream", self.units("a"))
        assert ringward("logs", "job", "web").stdout == "job   | a\n"
        assert ringward("logs", "--all").stdout == "job   | a\n"
        daemon.on("GET", "/api/tasks/web/log/stream", self.units("a", taskName="web", instanceIndex=1))
        assert ringward("logs", "web").stdout == "web-1 | a\n"
        assert json.loads(ringward("logs", "--json", "web").stdout)["instanceIndex"] == 1

    def test_units_resume_with_the_cursor(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A stream of units that breaks, even within an event, is resumed with its cursor."""
        run = event("run", {"r": 0, "runId": RUN, "taskName": "job", "instanceIndex": 0})
        first = event("lines", [{"r": 0, **line(0, "a")}]).replace(b"event", b"id: C1\nevent", 1)
        half = event("lines", [{"r": 0, **line(1, "b")}])[:20]
        later = event("lines", [{"r": 0, **line(1, "b")}])
        done = event("done", {"runs": 1})
        daemon.on("GET", self.UNIT_LOG, events(run, first, half, broken=True), events(run, later, done))
        assert ringward("logs", "-f", "job").stdout == "a\nb\n"
        cursors = [request.headers.get("Last-Event-ID") for request in daemon.requests_to(self.UNIT_LOG)]
        assert cursors == [None, "C1"]

    def test_contradictory_arguments(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A missing name, a run with options of units, and an invalid time are usage errors."""
        daemon.on("GET", f"/api/runs/{RUN}", run())
        for arguments in ((), ("--all", "job"), (RUN, "--grep", "x"), (RUN, "job"), ("job", "--since", "noon")):
            assert ringward("logs", *arguments).exit_code == exit_codes.USAGE

    def test_many_lines_are_fetched_in_pages(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """Lines that exceed one answer are fetched in pages."""
        daemon.on("GET", f"/api/runs/{RUN}", run())
        daemon.on("GET", self.LOG, self.page(30_000))
        lines = ringward("logs", "-n", "25000", RUN).stdout.splitlines()
        assert lines == [f"line {n}" for n in range(5000, 30_000)]

    def test_removed_lines(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """The number of missing lines is shown, whether they are at the start, in between, at the end, or all."""
        daemon.on("GET", f"/api/runs/{RUN}", run())

        def of(*numbers: int) -> Callable[[Request], Answer]:
            def answer(request: Request) -> Answer:
                start = int(request.query["from"])
                shown_lines = [line(n, f"line {n}") for n in numbers if n >= (10 + start if start < 0 else start)]
                return as_json({"lines": shown_lines, "firstAvailable": 0, "totalLines": 10})

            return answer

        for numbers, gap in (
            ((6, 7, 8, 9), "2 lines"),
            ((4, 5, 8, 9), "2 lines"),
            ((4, 5), "4 lines"),
            ((), "6 lines"),
        ):
            daemon.on("GET", self.LOG, of(*numbers))
            result = ringward("logs", "-n", "6", RUN)
            assert result.stdout == "".join(f"line {n}\n" for n in numbers)
            assert result.stderr == f"ringward: {gap} are no longer kept or unreadable\n"
        daemon.on("GET", self.LOG, of(*range(10)))
        assert ringward("logs", "-n", "6", RUN).stderr == ""

    def test_run_by_id(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A run is found by its id in any case; a task whose name looks like an id is found too."""
        daemon.on("GET", self.LOG, self.page(1))
        daemon.on("GET", f"/api/runs/{RUN}", run())
        assert ringward("logs", RUN.lower()).stdout == "line 0\n"
        daemon.on("GET", f"/api/runs/{RUN}", problem(404, "no run"))
        daemon.on("GET", f"/api/tasks/{RUN}/log/stream", self.units("of a task"))
        assert ringward("logs", RUN).stdout == "of a task\n"

    def test_raw(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """--raw prints the exact bytes of the run, and rejects options that would change them."""
        daemon.on("GET", f"/api/runs/{RUN}", run())
        daemon.on("GET", f"{self.LOG}/raw", Answer(200, b"\xff\x00\r\n", "text/plain"))
        assert ringward("logs", "--raw", RUN).stdout_bytes == b"\xff\x00\r\n"
        assert ringward("logs", "--raw", "-f", RUN).exit_code == exit_codes.USAGE
        assert ringward("logs", "--raw", "-n", "100", RUN).exit_code == exit_codes.USAGE
        assert ringward("logs", "--force", RUN).exit_code == exit_codes.USAGE

    def test_json(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """With --json, each line is one record."""
        daemon.on("GET", f"/api/runs/{RUN}", run())
        daemon.on("GET", self.LOG, self.page(2))
        lines = ringward("logs", "--json", RUN).stdout.splitlines()
        assert [json.loads(log_line)["n"] for log_line in lines] == [0, 1]

    def test_unknown_names(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """Unknown and invalid names are reported, with the nearest name."""
        daemon.on("GET", self.UNIT_LOG, problem(404, 'no task or service named "job" (did you mean "jab"?)'))
        assert 'no task or service named "job" (did you mean "jab"?)' in ringward("logs", "job").stderr
        assert 'not a name: "job,x"' in ringward("logs", "job,x").stderr

    @pytest.mark.parametrize("option", ["since", "until", "grep"])
    def test_rejected_option(self, ringward: Ringward, daemon: FakeDaemon, option: str) -> None:
        """An error about a parameter names the option of the command line."""
        error = {"location": f"query.{option}", "message": "missing ]: ["}
        daemon.on("GET", self.UNIT_LOG, problem(422, "Invalid", [error]))
        result = ringward("logs", "job", f"--{option}", "10m")
        assert (result.exit_code, result.stderr) == (exit_codes.USAGE, f"ringward: --{option}: missing ]: [\n")


class TestLists:
    TASK: ClassVar = {
        "name": "job",
        "kind": "task",
        "tags": [],
        "cron": ["@daily"],
        "nextRunAt": "2026-11-22T00:00:00.000Z",
        "lastRun": run(endReason="failed", exitCode=3),
        "active": {"running": 1, "pending": 2},
        "paused": False,
    }
    SERVICE: ClassVar = {"name": "web", "kind": "service", "state": "running", "active": {"running": 3, "pending": 0}}

    def test_ps(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """The columns are separated by tabs in a pipe, and --json prints the records."""
        idle = {"name": "idle", "kind": "task", "active": {"running": 0, "pending": 0}, "paused": True}
        daemon.on("GET", "/api/tasks", {"items": [self.TASK, self.SERVICE, idle]})
        rows = [row.split("\t") for row in ringward("ps").stdout.splitlines()]
        assert rows == [
            ["NAME", "KIND", "STATE", "LAST RESULT", "LAST RUN", "NEXT RUN", "ACTIVE"],
            ["job", "task", "running", "failed (3)", "2026-11-21T03:00:00.000Z", "2026-11-22T00:00:00.000Z", "1+2"],
            ["web", "service", "running", "-", "-", "-", "3"],
            ["idle", "task", "paused (idle)", "-", "-", "-", "0"],
        ]
        assert json.loads(ringward("ps", "--json").stdout)[1] == self.SERVICE

    def test_runs(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """Runs of all tasks or of one are listed, and the daemon filters them."""
        daemon.on("GET", "/api/runs", {"runs": [run(retryAttempt=2)], "total": 1})
        daemon.on("GET", "/api/tasks/job/runs", runs_page(run(status="running", endReason=None)))
        daemon.on("GET", "/api/tasks/job", self.TASK)
        rows = [row.split("\t") for row in ringward("runs", "--status", "failed", "--limit", "5").stdout.splitlines()]
        assert rows[1] == [RUN, "job", "0", "succeeded", "cron, retry 2", "2026-11-21T03:00:00.000Z", "1.5s"]
        assert daemon.requests_to("/api/runs")[0].query == {"naming": "camel", "limit": "5", "status": "failed"}
        assert ringward("runs", "job").stdout.splitlines()[1].split("\t")[3] == "running"
        assert json.loads(ringward("runs", "--json").stdout)[0]["id"] == RUN

    def test_aligned_columns(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """On a terminal, columns are aligned and control sequences are made visible."""
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        show_table(["NAME", "STATE"], [["a\x1b[2J", "failed"], ["longer-name", "[red]"]])
        shown = capsys.readouterr().out
        assert "\x1b[2J" not in shown
        assert "[red]" in shown
        first, second, third = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert first.index("STATE") == third.index("[red]")
        assert "^[[2J" in second

    @pytest.mark.parametrize("columns", [120, 80, 50, 20])
    def test_narrow_terminal(
        self,
        ringward: Ringward,
        daemon: FakeDaemon,
        monkeypatch: pytest.MonkeyPatch,
        columns: int,
    ) -> None:
        """Rows fit the terminal as long as names do; names are whole, and ids keep their ends."""
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
        monkeypatch.setenv("COLUMNS", str(columns))
        name = "nightly-export"
        page = {"runs": [run(taskName=name, retryAttempt=2)] * 2, "total": 2, "details": {RUN: {}}}
        daemon.on("GET", "/api/runs", page)
        daemon.on("GET", "/api/tasks", {"items": [self.SERVICE | {"name": name}, self.TASK | {"name": f"{name}2"}]})
        entry = {"at": "2026-11-21T03:00:00.000Z", "who": "token deploy-production", "from": "127.0.0.1", "status": 403}
        entry |= {"operation": "triggerTask", "target": name, "reason": "the token may not trigger this task"}
        daemon.on("GET", "/api/audit", {"items": [entry]})
        for command, whole in (
            ("runs", (name, RUN[-8:])),
            ("ps", (name,)),
            ("audit", ("trigger task", "token deploy-production")),
        ):
            result = ringward(command)
            lines = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout).splitlines()
            assert all(any(word in line for line in lines) for word in whole), result.stdout
            if columns >= 50:
                assert max(map(len, lines)) <= columns, result.stdout
                assert sum(name in line for line in lines) == {"runs": 2, "ps": 2}.get(
                    command, 0 if columns == 50 else 1
                )

    @pytest.mark.parametrize(
        ("columns", "shown"),
        [
            (50, ["NAME  STATE                               TOOK", "web   waiting for the database to answer  12.0s"]),
            (30, ["NAME  STATE              TOOK", "web   waiting for the    12.0s"]),
            (24, ["NAME  STATE", "web   waiting for the", "      database to answer", "(a wider terminal shows"]),
            (10, ["NAME", "web", "(a wider", "terminal"]),
            (2, ["NAME   web", "STATE  waiting for the database to answer", "TOOK   12.0s"]),
        ],
    )
    def test_least_important_columns_are_dropped_first(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, shown: list[str]
    ) -> None:
        """Text wraps between words before a column is dropped; a row that cannot fit becomes a block of lines."""
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        row = ["web", "waiting for the database to answer", "12.0s"]
        show_table(["NAME", "STATE", "TOOK"], [row], prose={"STATE"}, gives_way=["TOOK", "STATE"])
        lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
        assert [line.rstrip() for line in lines[: len(shown)]] == shown

    def test_relative_times(self) -> None:
        """Relative times have at most two units, in either direction."""
        now = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
        assert relative("2026-11-21T12:00:30.000Z", now) == "in 30s"
        assert relative("2026-11-21T10:58:30Z", now) == "1h 1m ago"
        assert relative("2026-11-19T12:00:00Z", now) == "2d ago"
        assert relative("2026-11-21T12:00:00.100Z", now) == "now"
        assert relative("nonsense", now) == "nonsense"
        assert duration("2026-11-21T11:58:00Z", None, now) == "2m"

    def test_duration_after_the_clock_was_set_back(self) -> None:
        """The duration of a run that started in the future is not negative."""
        now = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
        assert duration("2026-11-21T13:00:00Z", None, now) == "0.0s"


class TestEnding:
    ENDING = f"/api/runs/{RUN}/ending"
    FULL: ClassVar = {
        "reason": "failed",
        "exitCode": 139,
        "signal": "SIGSEGV",
        "coreDumped": True,
        "oomKilled": True,
        "startedBy": "user alice (dashboard)",
        "requestedBy": "token ci",
        "scheduledFor": "2026-11-21T03:00:00.000Z",
        "missedCount": 2,
        "retryAt": "2026-11-21T03:05:00.000Z",
        "killedLeftovers": ["sleep (12)", "sh (13)"],
        "failureLine": 3,
        "lastLines": [line(7, "out"), line(8, "why", "system")],
    }

    def test_complete_ending(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """The ending has one fact a line, then the last lines of the log."""
        daemon.on("GET", f"/api/runs/{RUN}", run())
        daemon.on("GET", self.ENDING, self.FULL)
        assert ringward("ending", RUN).stdout.splitlines() == [
            "FIELD\tVALUE",
            f"run\t{RUN}",
            "reason\tfailed",
            "exit code\t139",
            "signal\tSIGSEGV, core dumped",
            "out of memory\tyes",
            "started by\tuser alice (dashboard)",
            "stopped by\ttoken ci",
            "scheduled for\t2026-11-21T03:00:00.000Z",
            "missed times\t2",
            "failure line\t3",
            "retry\t2026-11-21T03:05:00.000Z",
            "killed leftovers\tsleep (12), sh (13)",
            "",
            "out",
            "why",
        ]
        assert json.loads(ringward("ending", "--json", RUN).stdout) == self.FULL

    def test_newest_ended_run(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """For a task, the newest ended run is shown, without empty values."""
        daemon.on("GET", "/api/tasks/job/runs", runs_page(run()))
        daemon.on("GET", self.ENDING, {"reason": "skipped", "exitCode": -1, "lastLines": []})
        assert ringward("ending", "job").stdout == f"FIELD\tVALUE\nrun\t{RUN}\nreason\tskipped\n"
        assert daemon.requests_to("/api/tasks/job/runs")[0].query["status"] == "ended"

    def test_definition_of_the_run(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """--definition adds the definition with which the run started, under the names of the configuration file."""
        daemon.on("GET", f"/api/runs/{RUN}", run())
        ending = {
            "reason": "succeeded",
            "exitCode": 0,
            "startedBy": "token ci",
            "requestedBy": "token ci",
            "lastLines": [],
        }
        daemon.on("GET", self.ENDING, ending)
        definition = {"run": "exit 0", "timeoutMs": 5000, "env": {"A": "***"}}
        daemon.on("GET", f"/api/runs/{RUN}/definition", {"hash": "1", "kind": "task", "definition": definition})
        assert ringward("ending", "--definition", RUN).stdout.splitlines() == [
            "FIELD\tVALUE",
            f"run\t{RUN}",
            "reason\tsucceeded",
            "exit code\t0",
            "started by\ttoken ci",
            "",
            "KEY\tVALUE",
            "run\texit 0",
            "timeout_ms\t5000",
            'env\t{"A": "***"}',
        ]
        document = json.loads(ringward("ending", "--definition", "--json", RUN).stdout)
        assert document == {**ending, "definition": definition}

    def test_no_ended_run(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A task without an ended run, an active run and an unknown name are errors."""
        daemon.on("GET", "/api/tasks/job/runs", runs_page())
        result = ringward("ending", "job")
        assert (result.exit_code, "no run of job has ended" in result.stderr) == (exit_codes.REFUSED, True)
        daemon.on("GET", f"/api/runs/{RUN}", run(status="running"))
        daemon.on("GET", self.ENDING, problem(409, "it has not ended"))
        result = ringward("ending", RUN)
        assert (result.exit_code, "it has not ended" in result.stderr) == (exit_codes.REFUSED, True)
        assert ringward("ending", "nobody").exit_code == exit_codes.REFUSED


class TestStop:
    def test_run_or_all_active_runs_of_a_task(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """Each stopped run is printed."""
        daemon.on("GET", f"/api/runs/{RUN}", run(status="running"))
        daemon.on("GET", "/api/tasks/job/runs", runs_page(run(), run(id=OTHER)))
        for run_id in (RUN, OTHER):
            daemon.on("POST", f"/api/runs/{run_id}/stop", Answer(204))
        assert ringward("stop", "--no-wait", RUN).stdout == f"{RUN}\n"
        assert ringward("stop", "--no-wait", "--force", "job").stdout == f"{RUN}\n{OTHER}\n"
        stops = [request.query for run_id in (RUN, OTHER) for request in daemon.requests_to(f"/api/runs/{run_id}/stop")]
        assert stops == [{}, {"force": "true"}, {"force": "true"}]
        assert daemon.requests_to("/api/tasks/job/runs")[0].query["status"] == "pending,running"
        assert json.loads(ringward("stop", "--no-wait", "--json", "job").stdout) == {"stopped": [RUN, OTHER]}

    def test_many_active_runs(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """All active runs are stopped, even if they exceed one page."""
        ids = [f"01ARZ3NDEKTSV4RRFFQ69G{n:04d}" for n in range(1001)]
        daemon.on("GET", "/api/tasks/job/runs", runs_page(*(run(id=run_id) for run_id in ids)))
        for run_id in ids:
            daemon.on("POST", f"/api/runs/{run_id}/stop", Answer(204))
        assert ringward("stop", "--no-wait", "job").stdout.splitlines() == ids

    def test_nothing_to_stop(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A stopped unit counts as success; an unknown name is an error."""
        daemon.on("GET", "/api/tasks/job/runs", {"items": [], "total": 0})
        result = ringward("stop", "job")
        assert (result.exit_code, "no active runs" in result.stderr) == (0, True)
        assert ringward("stop", "nobody").exit_code == exit_codes.REFUSED


class TestPassword:
    def test_generated_password(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """Standard output has only the generated password."""
        daemon.on("GET", "/api/local/credentials", {"ephemeral": True, "password": "open-sesame"})
        assert ringward("password").stdout == "open-sesame\n"
        assert json.loads(ringward("password", "--json").stdout) == {"ephemeral": True, "password": "open-sesame"}

    def test_configured_password_is_not_shown(self, ringward: Ringward, daemon: FakeDaemon, tmp_path: Path) -> None:
        """The error names the place of a configured password instead of the password."""
        daemon.on("GET", "/api/local/credentials", problem(404, "configured"))
        result = ringward("password")
        assert (result.exit_code, result.stdout) == (exit_codes.REFUSED, "")
        assert "RINGWARD_PASSWORD" in result.stderr
        path = tmp_path / "ringward.toml"
        path.write_text("[http]\npassword_file = 'pw'\n")
        path.chmod(0o644)
        assert f"{tmp_path}/pw" in ringward("password").stderr

    def test_refused_client(self, ringward: Ringward, daemon: FakeDaemon) -> None:
        """A refusal of the daemon exits with the code for missing permission."""
        daemon.on("GET", "/api/local/credentials", problem(403, "not over a proxy"))
        assert ringward("password").exit_code == exit_codes.NOT_PERMITTED


class TestValidate:
    def test_valid_configuration(self, ringward: Ringward, tmp_path: Path) -> None:
        """The command counts tasks and services, in words or as JSON."""
        path = tmp_path / "r.toml"
        path.write_text("[tasks.a]\nrun = 'x'\n[services.b]\nrun = 'x'\n")
        path.chmod(0o644)
        assert ringward("validate", str(path)).stdout == f"{path}: valid, 1 task, 1 service\n"
        document = json.loads(ringward("validate", "-c", str(path), "--json", plain=True).stdout)
        assert (document["valid"], document["tasks"], document["files"]) == (True, 1, [str(path)])

    def test_warnings(self, ringward: Ringward, tmp_path: Path) -> None:
        """A warning goes to standard error with its line, and into the JSON document; the status stays 0."""
        (tmp_path / "dash").touch()
        path = tmp_path / "r.toml"
        path.write_text(f"[tasks.a]\nrun = 'x'\nshell = '{tmp_path}/dash'\nenv = {{ 'app.name' = 'shop' }}\n")
        path.chmod(0o644)
        result = ringward("validate", str(path))
        assert (result.exit_code, result.stdout) == (0, f"{path}: valid, 1 task, 0 services\n")
        assert result.stderr.startswith(f"warning: {path}:2: tasks.a.run: {tmp_path}/dash is dash, which drops ")
        document = json.loads(ringward("validate", "--json", str(path), plain=True).stdout)
        assert [warning["line"] for warning in document["warnings"]] == [2]

    def test_invalid_configuration(self, ringward: Ringward, tmp_path: Path) -> None:
        """An invalid configuration exits with 78 and lists all problems with their places."""
        path = tmp_path / "r.toml"
        path.write_text("[tasks.a]\nrun = 'x'\ntimeot = 1\n[foo]\n")
        path.chmod(0o644)
        result = ringward("validate", str(path))
        assert result.exit_code == exit_codes.CONFIG
        assert f'{path}:3: tasks.a.timeot: unknown key\n  did you mean "timeout"?\n' in result.stderr
        assert result.stderr.endswith("2 problems\n")
        result = ringward("validate", "--json", str(path))
        assert result.exit_code == exit_codes.CONFIG
        assert [finding["line"] for finding in json.loads(result.stdout)["problems"]] == [3, 4]
        assert ringward("validate").exit_code == exit_codes.CONFIG

    @pytest.mark.parametrize(
        ("text", "key", "message"),
        [
            ('[http]\npassword_file = "missing"\n', "http.password_file", "No such file"),
            ('[http]\npassword_file = "short"\n', "http.password_file", "shorter than 8"),
            ('[http]\npassword_file = "."\n', "http.password_file", "not a regular file"),
            ('[http]\ntls_cert = "short"\ntls_key = "missing"\n', "http.tls_cert", "cannot use"),
            (
                '[http]\nsocket = "x"\nsocket_group = "no such group"\n',
                "http.socket_group",
                "no such group on this host",
            ),
            ('[http]\nsocket = "short"\n', "http.socket", "exists and is not a socket"),
            ('[http]\nsocket = "missing/socket"\n', "http.socket", "no such directory"),
            (f'[daemon]\ndata_dir = "{"d" * 120}"\n', "daemon.data_dir", "too long"),
            ('[storage]\ndatabase = "postgresql://db/x?nobody=1"\n', "storage.database", "is not a valid URL"),
        ],
    )
    def test_missing_on_the_host(self, ringward: Ringward, tmp_path: Path, text: str, key: str, message: str) -> None:
        """The command reports what ``up`` would refuse on this host, in the same words, with the place of the key."""
        (tmp_path / "short").write_text("seven77\n")
        path = tmp_path / "ringward.toml"
        path.write_text(text)
        path.chmod(0o644)
        result = ringward("validate", "--json", str(path), plain=True)
        assert result.exit_code == exit_codes.CONFIG
        document = json.loads(result.stdout)
        line = 3 if key == "http.socket_group" else 2
        assert [(finding["key"], finding["line"]) for finding in document["problems"]] == [(key, line)]
        assert message in document["problems"][0]["message"]
        assert "\n" + ringward("up", "-c", str(path), plain=True).stderr in (
            "\n" + ringward("validate", str(path), plain=True).stderr.replace("1 problem\n", "")
        )
        assert (tmp_path / "short").read_text() == "seven77\n"

    def test_all_missing_on_the_host(self, ringward: Ringward, tmp_path: Path) -> None:
        """All problems of the host are reported at once."""
        path = tmp_path / "ringward.toml"
        path.write_text('[http]\npassword_file = "a"\ntls_cert = "b"\ntls_key = "c"\n')
        path.chmod(0o644)
        result = ringward("validate", str(path), plain=True)
        assert (result.exit_code, result.stderr.endswith("2 problems\n")) == (exit_codes.CONFIG, True)


def test_commands_wait_for_a_starting_daemon(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A command is repeated while the daemon is starting; a health check is not."""
    answers = [problem(503, STARTING), problem(503, STARTING), as_json({"items": []})]
    daemon.handlers["GET", "/api/tasks"] = lambda _request: answers.pop(0)
    assert ringward("ps").exit_code == 0
    assert answers == []
    daemon.on("GET", "/readyz", problem(503, "Not ready: the daemon is starting"))
    assert ringward("health").exit_code == exit_codes.UNREACHABLE


def test_socket_from_the_configuration(daemon: FakeDaemon, tmp_path: Path) -> None:
    """A configuration that is found determines the daemon's socket."""
    (tmp_path / "ringward.toml").write_text(f"[http]\nsocket = '{daemon.socket}'\n")
    (tmp_path / "ringward.toml").chmod(0o644)
    daemon.on("GET", "/api/tasks", {"items": []})
    assert CliRunner().invoke(cli, ["ps"]).exit_code == 0


def test_invalid_configuration_does_not_stop_clients(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Health checks and other clients find a running daemon while its file is being edited."""
    path = tmp_path / "ringward.toml"
    path.write_text(f"[daemon]\ndata_dir = '{tmp_path}/data'\n[tasks.job\nrun = 'x'\n")
    path.chmod(0o644)
    daemon.on("GET", "/readyz", {"status": "ok"})
    daemon.on("GET", "/api/tasks", {"items": []})
    daemon.on("GET", "/api/tasks/job/runs", {"items": [], "total": 0})
    daemon.on("GET", "/api/local/credentials", problem(404, "configured"))
    for arguments, code in ((["health"], 0), (["ps"], 0), (["stop", "job"], 0), (["password"], exit_codes.REFUSED)):
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == code, result.output
