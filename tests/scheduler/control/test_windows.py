"""Windows in effect: scheduled times, runs and alarms, through restarts and reloads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import deliveries
from supervisor.scheduler.control.unit_operations import UnitOperations
from supervisor.scheduler.control.window_operations import WindowOperations
from tests.scheduler.control.operations import operations_of
from tests.scheduler.runs.schedules import DAY, HOUR, MINUTE, START, Schedules, ms, next_run, task

FAILED = 3 << 8
HOURLY = task('cron = "0 * * * *"\ncatch_up = 10')
SKIP = '[windows.w]\ncron = "0 2 * * *"\nduration = "3h"\n'
DEFER = f'{SKIP}instants = "defer"\n'
BY_HAND = "[windows.w]\n"
NOTIFIED = '[notifiers.n]\nurl = "json://localhost"\n[[routes]]\nnotify = "n"\n'
Make = Callable[[str], "Windowed"]


def on_day(hour: int) -> int:
    return ms(f"2026-06-01T{hour:02}:00:00Z")


class Windowed(Schedules):
    """Schedules with windows."""

    def recall_pauses(self) -> None:
        self.operations = WindowOperations(
            self.core, self.windows, self.units, self.scheduled_starts, self.engine.stop, lambda: None
        )
        self.operations.follow()

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        answers: list[dict[str, Any]] = []
        operations_of(self.operations)[operation](arguments, answers.append)
        self.store.work_all()
        return answers[0]

    def opens(self, until: int | None = None, note: str | None = None) -> None:
        assert self.ask("window_start", window="w", by="anna", until=until, note=note)["ok"]

    def closes(self) -> None:
        assert self.ask("window_end", window="w", by="anna")["ok"]

    def reload(self, text: str) -> None:
        """Apply a configuration that differs only in its windows."""
        self.rewrite(text)
        self.operations.configure(self.config)
        self.store.work_all()

    def records(self) -> list[tuple[str | None, int, int | None, str | None]]:
        return [
            tuple(row)
            for row in self.store.database.rows(
                "SELECT cause, scheduled_at, missed_count, stopped_by FROM runs WHERE cause IS NOT NULL"
                " ORDER BY scheduled_at",
                [],
            )
        ]

    def messages(self) -> list[tuple[str, int]]:
        """Return kinds and due times of waiting messages."""
        self.store.work_all()
        return [
            (kind, due)
            for kind, due in self.store.database.rows("SELECT kind, due_at FROM deliveries ORDER BY seq", [])
        ]

    def ends(self, status: int = 0) -> None:
        """Let a run by hand end."""
        run = self.trigger("t")
        self.store.work_all()
        self.started(run.id)
        self.exited(run.id, status=status)
        self.store.work_all()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Windowed] = []

    def make(text: str) -> Windowed:
        made.append(Windowed(tmp_path, text))
        return made[-1]

    yield make
    for made_bench in made:
        made_bench.close()


RESTARTS = pytest.mark.parametrize("first", [None, False, True])


def restart(harness: Windowed, first: bool | None) -> None:
    if first is not None:
        harness.dies(first=first)


@RESTARTS
def test_skipped_times(make: Make, *, first: bool | None) -> None:
    """Times in a window do not run: one record for each task and local day counts them, with the window as cause."""
    harness = make(HOURLY + SKIP)
    harness.until(START + 3 * HOUR)
    restart(harness, first)
    harness.until(START + 6 * HOUR)
    assert harness.ran() == [on_day(hour) for hour in (1, 5, 6)]
    assert harness.records() == [("window", on_day(4), 3, "window: w")]


@RESTARTS
def test_deferred_times(make: Make, *, first: bool | None) -> None:
    """Times in a window that defers become one run at its end."""
    harness = make(HOURLY + DEFER)
    harness.until(START + 3 * HOUR)
    assert next_run(harness) == on_day(5)
    restart(harness, first)
    harness.until(START + 6 * HOUR)
    assert harness.ran() == [on_day(hour) for hour in (1, 5, 6)]
    assert harness.records() == []


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("window", "ran", "records"),
    [(SKIP, [1, 5, 6, 7], [("window", 4, 3, "window: w")]), (DEFER, [1, 5, 6, 7], [])],
)
def test_window_that_passes_while_nothing_runs(
    make: Make, window: str, ran: list[int], records: list[Any], *, first: bool
) -> None:
    """Times that are caught up are those outside the windows that passed, and the end of one that defers."""
    harness = make(HOURLY + window)
    harness.clock.advance_ms(7 * HOUR)
    harness.dies(first=first)
    assert harness.ran() == [on_day(hour) for hour in ran]
    assert harness.records() == [(cause, on_day(hour), count, by) for cause, hour, count, by in records]


@RESTARTS
def test_window_by_hand(make: Make, *, first: bool | None) -> None:
    """A person opens a window for a time; it survives restarts, and ends by itself."""
    harness = make(HOURLY + BY_HAND)
    harness.until(START + 90 * MINUTE)
    harness.opens(until=START + 210 * MINUTE, note="release 5")
    restart(harness, first)
    (shown,) = harness.operations.facts()["windows"]
    assert shown == {
        "name": "w",
        "since": START + 90 * MINUTE,
        "until": START + 210 * MINUTE,
        "by": "anna",
        "note": "release 5",
    }
    harness.until(START + 5 * HOUR)
    assert harness.ran() == [on_day(hour) for hour in (1, 4, 5)]
    assert harness.records() == [("window", on_day(3), 2, "window: w")]


@pytest.mark.parametrize("first", [False, True])
def test_window_by_hand_that_passes_while_nothing_runs(make: Make, *, first: bool) -> None:
    """The times in a window that a person opened are not caught up, even if it ended while nothing ran."""
    harness = make(HOURLY + BY_HAND)
    harness.until(START + 90 * MINUTE)
    harness.opens(until=START + 210 * MINUTE)
    harness.clock.advance_ms(5 * HOUR)
    harness.dies(first=first)
    assert harness.ran() == [on_day(hour) for hour in (1, 4, 5, 6)]
    assert harness.records() == [("window", on_day(3), 2, "window: w")]


@RESTARTS
@pytest.mark.parametrize(
    ("text", "ran"), [(SKIP, [1, 4, 5, 6]), (DEFER, [1, 4, 5, 6]), (f'{BY_HAND}instants = "defer"\n', [1, 4, 5, 6])]
)
def test_ending_early(make: Make, text: str, ran: list[int], *, first: bool | None) -> None:
    """A window that a person ends early is closed until it opens again; what it deferred runs at once."""
    harness = make(HOURLY + text)
    harness.until(START + 2 * HOUR - MINUTE)
    if text.startswith(BY_HAND) and "cron" not in text:
        harness.opens()
    harness.until(START + 210 * MINUTE)
    harness.closes()
    restart(harness, first)
    harness.until(START + 6 * HOUR)
    early = [START + 210 * MINUTE] if "defer" in text else []
    assert harness.ran() == sorted([*(on_day(hour) for hour in ran), *early])
    harness.until(START + DAY + 3 * HOUR)
    assert (harness.windows.opening("t", START + DAY + 3 * HOUR) is not None) == ("cron" in text)


@RESTARTS
def test_jitter_within_a_window_without_end(make: Make, *, first: bool | None) -> None:
    """Times with a jitter are skipped, too, while a window stays open that has no end."""
    harness = make(task('cron = "0 * * * *"\njitter = "50m"') + BY_HAND)
    harness.opens()
    harness.clock.advance_ms(5 * HOUR)
    harness.look()
    restart(harness, first)
    harness.closes()
    harness.until(START + 7 * HOUR)
    assert harness.ran() == [on_day(hour) for hour in (6,)]
    assert [(cause, count) for cause, _, count, _ in harness.records()] == [("window", 5)]


def test_operations_that_are_refused(make: Make) -> None:
    """Unknown windows are 404, and the end of a closed one is 409."""
    harness = make(HOURLY + BY_HAND)
    assert harness.ask("window_start", window="x", by="anna")["status"] == 404
    assert harness.ask("window_end", window="x", by="anna")["status"] == 404
    answer = harness.ask("window_end", window="w", by="anna")
    assert (answer["status"], answer["detail"]) == (409, "the window w is not open")


@pytest.mark.parametrize("window", [SKIP, DEFER])
@pytest.mark.parametrize("after", ["", '[windows.w]\ncron = "0 12 * * *"\nduration = "1h"\n'])
def test_reload_that_changes_an_open_window(make: Make, window: str, after: str) -> None:
    """A window that a reload changes or removes ends for what it kept: nothing runs twice, and nothing is missed."""
    harness = make(HOURLY + window)
    harness.until(START + 210 * MINUTE)
    harness.reload(HOURLY + after)
    harness.until(START + 6 * HOUR)
    deferred = [START + 210 * MINUTE] if window is DEFER else []
    assert harness.ran() == [on_day(1), *deferred, on_day(4), on_day(5), on_day(6)]
    assert {reason for reason, _, _ in harness.rows()} <= {"run", "skipped"}
    assert harness.operations.facts()["windows"] == []


def test_reload_keeps_what_people_did(make: Make) -> None:
    """A window that a person opened stays open through a reload that changes its keys, and ends with its removal."""
    harness = make(HOURLY + BY_HAND)
    harness.opens()
    harness.reload(f'{HOURLY}{BY_HAND}alarms = "send"\n')
    harness.until(START + 2 * HOUR)
    assert harness.ran() == []
    harness.reload(HOURLY)
    harness.until(START + 3 * HOUR)
    assert harness.ran() == [on_day(3)]


def test_pause_within_a_window(make: Make) -> None:
    """A pause comes before a window: its times leave no record, and are not deferred."""
    harness = make(HOURLY + DEFER)
    harness.until(START + 90 * MINUTE)

    def act(operation: str) -> None:
        units = UnitOperations(
            harness.core, harness.engine.stop, harness.controller, harness.scheduled_starts, harness.units
        )
        operations_of(units)[operation]({"task": "t", "by": "me"}, lambda _answer: None)
        harness.store.work_all()

    act("task_pause")
    harness.until(START + 270 * MINUTE)
    act("task_resume")
    harness.until(START + 6 * HOUR)
    assert harness.ran() == [on_day(hour) for hour in (1, 5, 6)]
    assert harness.records() == []


@RESTARTS
def test_runs_that_a_window_stops(make: Make, *, first: bool | None) -> None:
    """A window can stop the runs that began before it, active or waiting; runs that people start in it go on."""
    harness = make(task("max_concurrent = 1") + BY_HAND + 'running = "stop"\n')
    active, waiting = harness.trigger("t"), harness.trigger("t")
    harness.store.work_all()
    harness.started(active.id)
    harness.until(START + HOUR)
    harness.opens(until=START + 5 * HOUR)
    assert harness.root.take("stop") == [active.id]
    assert harness.row(waiting).end_reason == "stopped"
    assert harness.row(waiting).stopped_by == "window: w"
    harness.exited(active.id, cause="stop")
    later = harness.trigger("t")
    harness.store.work_all()
    harness.started(later.id)
    harness.until(START + 2 * HOUR)
    if first is None:
        harness.opens(until=START + 6 * HOUR)
    assert harness.root.take("stop") == []


def test_scheduled_window_stops_runs(make: Make) -> None:
    """Runs also stop when a window opens by its times."""
    harness = make(task("") + SKIP + 'running = "stop"\n')
    run = harness.trigger("t")
    harness.store.work_all()
    harness.started(run.id)
    harness.until(START + HOUR)
    assert harness.root.take("stop") == []
    harness.until(START + 2 * HOUR)
    assert harness.root.take("stop") == [run.id]


@RESTARTS
def test_alarms_wait(make: Make, *, first: bool | None) -> None:
    """Alarms in a window wait for its end, once for each problem; one that is over by then is dropped."""
    harness = make(task("") + NOTIFIED + SKIP)
    harness.until(START + 3 * HOUR)
    harness.ends(FAILED)
    restart(harness, first)
    harness.ends(FAILED)
    assert harness.messages() == [("run.failed", on_day(5))]
    harness.ends()
    assert harness.messages() == []
    harness.ends(FAILED)
    assert harness.messages() == [("run.failed", on_day(5))]
    due = deliveries.due_messages(harness.store.database, on_day(5), (), 1)
    assert [[message.kind for message in together] for together in due] == [["run.failed"]]
    harness.until(START + 5 * HOUR)
    deliveries.delivered(harness.store.database, "n", [message.seq for message in due[0]], on_day(5))
    harness.ends()
    assert [kind for kind, _ in harness.messages()] == ["run.recovered"]


def test_recovery_from_a_known_problem(make: Make) -> None:
    """Who was told of a failure before the window hears of its recovery at its end, without what happened between."""
    harness = make(task("") + NOTIFIED + SKIP)
    harness.ends(FAILED)
    ((_, due),) = harness.messages()
    deliveries.delivered(harness.store.database, "n", [1], due)
    harness.until(START + 3 * HOUR)
    harness.ends(FAILED)
    assert harness.messages() == [("run.failed", on_day(5))]
    harness.ends()
    assert harness.messages() == [("run.recovered", on_day(5))]


def test_alarms_of_services_wait(make: Make) -> None:
    """Alarms about services wait, too."""
    harness = make(f'[services.s]\nrun = "false"\n{NOTIFIED}{SKIP}')
    harness.until(START + 3 * HOUR)
    unit = harness.units["s"]
    with harness.committer.changing() as change:
        harness.notifications.service_fatal(unit, unit.instances[0], None, change)
    assert harness.messages() == [("service.fatal", on_day(5))]
    with harness.committer.changing() as change:
        harness.notifications.service_recovered(unit, START, change)
    assert harness.messages() == []


def test_messages_follow_the_end_of_a_window(make: Make) -> None:
    """Held messages are sent when a person ends the window, and wait longer if someone prolongs it."""
    harness = make(task("") + NOTIFIED + SKIP)
    harness.until(START + 3 * HOUR)
    harness.ends(FAILED)
    harness.opens(until=on_day(7))
    assert harness.messages() == [("run.failed", on_day(7))]
    harness.until(START + 4 * HOUR)
    harness.closes()
    assert harness.messages() == [("run.failed", START + 4 * HOUR)]
    harness.ends()
    assert [kind for kind, _ in harness.messages()] == ["run.failed", "run.recovered"]


def test_alarms_are_sent(make: Make) -> None:
    """With alarms = "send", and outside of windows, alarms do not wait."""
    harness = make(task("") + NOTIFIED + SKIP + 'alarms = "send"\n')
    harness.until(START + 3 * HOUR)
    harness.ends(FAILED)
    assert harness.messages() == [("run.failed", START + 3 * HOUR)]


def test_window_of_other_tasks(make: Make) -> None:
    """A window does not affect tasks that it does not match."""
    harness = make(f'{HOURLY}[tasks.x]\nrun = "true"\ncron = "0 * * * *"\n{SKIP}match = {{ tasks = "x" }}\n')
    harness.until(START + 3 * HOUR)
    assert harness.ran() == [on_day(hour) for hour in (1, 2, 3)]
    assert harness.ran("x") == [on_day(1)]


def test_answer(make: Make) -> None:
    """The list of windows says which are open, and when the others open next."""
    harness = make(HOURLY + SKIP)
    (window,) = harness.ask("windows")["result"]["windows"]
    assert window == {
        "name": "w",
        "cron": ("0 2 * * *",),
        "duration": "3h",
        "match": {},
        "instants": "skip",
        "running": "continue",
        "alarms": "hold",
        "open": None,
        "next": {"name": "w", "since": on_day(2), "until": on_day(5), "by": None, "note": None},
    }
