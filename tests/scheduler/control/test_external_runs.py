"""Runs that jobs elsewhere report, over time and over restarts of the scheduler."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logring.log_paths import log_path, ring_path
from logring.reader import LogReader
from store.errors import DiskFull
from store.runs.ids import new_ulid
from store.runs.writes import Run, get_run
from tests.scheduler.control.operations import operations_of
from tests.scheduler.runs.schedules import MINUTE, START, Schedules

TOKEN = "0123456789abcdef"
CONFIG = """
[tasks.t]
external = true
cron = "* * * * *"
grace = "20s"
timeout = "90s"
exit_codes = [0, 3]
token_file = "token"
"""


class Reports(Schedules):
    """A bench to which a job reports."""

    def report(self, exit_code: int | None = None, output: str = "", *, token: str = TOKEN, run: str = "") -> Any:
        """Report a beginning, or an end with an exit code; return the answer."""
        answers: list[Any] = []
        arguments = {
            "token": hashlib.sha256(token.encode()).hexdigest(),
            "run": run or new_ulid(self.loop.now_ms()),
            "exit_code": exit_code,
            "output": output,
        }
        operations_of(self.external)["report"](arguments, answers.append)
        self.store.work_all()
        (answer,) = answers
        return answer

    def runs(self) -> list[Run]:
        """Return all runs, oldest first."""
        rows = self.store.database.rows("SELECT id FROM runs ORDER BY created_at, id", [])
        return [run for (run_id,) in rows if (run := get_run(self.store.database, run_id)) is not None]

    def ends(self) -> list[tuple[str | None, int | None]]:
        return [(run.end_reason or run.status, run.exit_code) for run in self.runs()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Reports]:
    (tmp_path / "token").write_text(TOKEN)
    made = Reports(tmp_path, CONFIG)
    yield made
    made.close()


def test_beginning_and_end(bench: Reports) -> None:
    """A report of the beginning makes a running run, and that of the end ends it, with its output as the log."""
    assert bench.report()["ok"]
    bench.clock.advance_ms(5000)
    assert bench.ends() == [("running", -1)]
    assert bench.report(3, "one\ntwo")["ok"]
    (run,) = bench.runs()
    assert (run.end_reason, run.exit_code, run.lines, run.triggered_by) == ("succeeded", 3, 2, "api")
    assert (run.started_at, run.ended_at) == (START, START + 5000)
    reader = LogReader(ring_path(bench.settings.runtime_dir, run.id), log_path(bench.settings.data_dir, "t", run.id))
    assert [batch.text for batch in reader.read_batches(0, 10, 1000).lines] == [b"one\ntwo"]
    assert bench.root.sent == []


def test_end_alone(bench: Reports) -> None:
    """The report of an end without a beginning stands for a whole run."""
    bench.report(1, "boom\n")
    assert bench.ends() == [("failed", 1)]


def test_second_beginning(bench: Reports) -> None:
    """A beginning while a run is open ends that one as crashed."""
    bench.report()
    bench.clock.advance_ms(1000)
    bench.report()
    assert [reason for reason, _ in bench.ends()] == ["crashed", "running"]


def test_time_limit_and_stop(bench: Reports) -> None:
    """The time limit and a stop end a run here; the next report is that of a new run."""
    bench.report()
    bench.until(START + 90_000)
    assert bench.ends()[0] == ("timeout", -1)
    bench.report()
    bench.stop(next(iter(bench.engine.live.values())))
    bench.store.work_all()
    assert bench.runs()[-1].end_reason == "stopped"
    bench.report(0)
    assert bench.runs()[-1].end_reason == "succeeded"


def test_missing_report(bench: Reports) -> None:
    """A scheduled time is missed if its job does not report within `grace`; it may report a little early."""
    first = START + 30_000
    bench.until(first + 5000)
    bench.report(0)
    bench.until(first + MINUTE - 9000)  # the next one, nine seconds early
    bench.report(0)
    bench.until(first + MINUTE + 20_000)
    assert [state for state, _, _ in bench.rows() if state == "missed"] == []
    bench.until(first + 2 * MINUTE + 19_999)
    assert bench.rows()[-1][0] == "run"
    bench.until(first + 2 * MINUTE + 20_000)
    assert ("missed", first + 2 * MINUTE, 1) in bench.rows()


def test_shutdown_and_restart(bench: Reports) -> None:
    """A run goes on while no scheduler runs, and its time limit counts from its beginning."""
    bench.report()
    bench.stop(next(iter(bench.engine.live.values())), cause="shutdown")
    bench.clock.advance_ms(10_000)
    bench.restart()
    assert bench.ends() == [("running", -1)]
    bench.until(START + 89_999)
    assert bench.ends()[0] == ("running", -1)
    bench.until(START + 90_000)
    assert bench.ends()[0] == ("timeout", -1)


def test_repeated_report(bench: Reports) -> None:
    """A report that is sent again, perhaps to the next scheduler, has no second effect."""
    again = new_ulid(bench.loop.now_ms())
    bench.report(0, run=again)
    bench.restart()
    assert bench.report(0, run=again)["ok"]
    assert len(bench.runs()) == 1


def test_refusals(bench: Reports) -> None:
    """A wrong token, and more than 60 reports in a minute, are refused."""
    assert bench.report(0, token="another token 00")["status"] == 404
    answers = [bench.report(0) for _ in range(61)]
    assert [answer["ok"] for answer in answers] == [True] * 60 + [False]
    assert answers[-1]["status"] == 429


def test_unwritable_log(bench: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end is stored even if its output cannot be written, and the daemon's log says so."""

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("supervisor.scheduler.control.external_runs.write_sealed_log", refuse)
    bench.report(0, "output")
    (run,) = bench.runs()
    assert (run.end_reason, run.lines) == ("succeeded", 0)
    assert any("cannot write the reported output" in line for line in bench.lines.texts)


def test_removed_task(bench: Reports) -> None:
    """A run whose task leaves the configuration is stopped, because nothing could report its end."""
    bench.report()
    bench.units["t"].configured = False
    bench.external.configure(bench.config)
    bench.store.work_all()
    assert [reason for reason, _ in bench.ends()] == ["stopped"]


def test_end_that_is_stored_late(bench: Reports) -> None:
    """The end of a run that cannot be stored at once is stored later, and the job is answered then."""
    bench.report()
    answers: list[Any] = []
    arguments = {"token": hashlib.sha256(TOKEN.encode()).hexdigest(), "run": new_ulid(START), "exit_code": 0}
    operations_of(bench.external)["report"](arguments, answers.append)
    bench.store.work()
    bench.store.fail(DiskFull("full"))
    assert answers == []
    bench.clock.advance_ms(2000)
    bench.look()
    assert answers[0]["ok"]
    assert bench.ends() == [("succeeded", 0)]
