import contextlib
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from store.errors import DiskFull
from store.runs.writes import runs_from
from supervisor.config.diff import process_hash
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.reload_bench import ReloadBench
from tests.support.waiting import until

Make = Callable[[str], ReloadBench]

SERVICE = '[services.s]\nrun = "sleep 9"\nhealthy_after = "0s"\n'
HOUR_MS = 3_600_000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Make]:
    """Make a bench that reloads its configuration only on request, and checks its file only as time passes."""
    with contextlib.ExitStack() as stack:

        def make(text: str) -> ReloadBench:
            harness = ReloadBench(tmp_path, text)
            stack.callback(harness.close)
            return harness

        yield make


def ids(harness: ReloadBench, name: str) -> list[str]:
    return sorted(run.id for run in harness.alive(name))


def test_unchanged_file(bench: Make) -> None:
    """A reload of an unchanged file changes no run and no task row, only the time of the reload."""
    text = f'{SERVICE}instances = 2\n[tasks.t]\nrun = "true"\ncron = "0 0 1 1 *"\n'
    harness = bench(text)
    before, rows = ids(harness, "s"), harness.tasks()
    timer = harness.units["t"].timer
    assert harness.done(text) == {"added": [], "changed": [], "removed": [], "warnings": []}
    assert (ids(harness, "s"), harness.tasks()) == (before, rows)
    assert harness.units["t"].timer is timer
    assert harness.info["config_loaded_at"] > 0


@pytest.mark.parametrize("dry_run", [False, True])
def test_warnings(bench: Make, dry_run: bool) -> None:
    """The report has the warnings about the new configuration, with file, line and remedy."""
    text = '[tasks.backup]\nrun = "true"\n'
    harness = bench(text)
    harness.write(f'{text}[http]\npublic = ["bakcup"]\n')
    answers = harness.ask(dry_run=dry_run)
    warning = 'ringward.toml:4: http.public[0]: no task or service named "bakcup"\n  did you mean "backup"?'
    (shown,) = harness.stored(answers)["result"]["warnings"]
    assert shown.endswith(warning)


def test_unchanged_tasks_cost_nothing(bench: Make) -> None:
    """Any number of unchanged tasks costs neither a write nor a timer."""
    text = "".join(f'[tasks.t{number}]\nrun = "true"\ncron = "0 0 1 1 *"\n' for number in range(500))
    harness = bench(text)
    timers = [unit.timer for unit in harness.units.values()]
    harness.write(f'{text}[tasks.new]\nrun = "true"\n')
    answers = harness.ask()
    harness.read()
    assert len(harness.store.jobs) == 1
    assert harness.stored(answers)["result"]["added"] == ["new"]
    assert [harness.units[f"t{number}"].timer for number in range(500)] == timers


def test_only_changed_services_restart(bench: Make) -> None:
    """A service with a changed command is restarted, and the other services are not."""
    harness = bench(f'{SERVICE}[services.other]\nrun = "sleep 9"\n')
    before, other = ids(harness, "s"), ids(harness, "other")
    message = harness.done(f'{SERVICE.replace("sleep 9", "sleep 10")}[services.other]\nrun = "sleep 9"\n')
    assert message["changed"] == [{"name": "s", "reasons": ["run: 1 instance is restarted"]}]
    assert ids(harness, "other") == other
    assert ids(harness, "s") != before
    assert [harness.recipes[run.id] for run in harness.alive("s")] == [process_hash(harness.units["s"].definition)]


def test_instances(bench: Make) -> None:
    """The number of instances changes live, and the remaining instances are not touched."""
    harness = bench(f"{SERVICE}instances = 2\n")
    first = ids(harness, "s")
    assert harness.done(f"{SERVICE}instances = 3\n")["changed"][0]["reasons"] == ["instances: 1 more is started"]
    assert len(ids(harness, "s")) == 3
    assert set(first) < set(ids(harness, "s"))
    assert harness.done(f"{SERVICE}instances = 1\n")["changed"][0]["reasons"] == ["instances: 2 are stopped"]
    assert ids(harness, "s") == [run.id for run in harness.alive("s") if run.instance == 0]
    assert [row.instance_index for row in harness.instances()] == [0]


def test_changed_policy(bench: Make) -> None:
    """A policy about the end of a process changes without a restart, and applies to the running process."""
    harness = bench(SERVICE)
    before = ids(harness, "s")
    text = f'{SERVICE}restart = "never"\nexit_codes = [7]\n'
    assert harness.done(text)["changed"][0]["reasons"] == ["restart, exit_codes: applies at once"]
    assert ids(harness, "s") == before
    harness.exited(before[0], status=7 << 8)
    harness.drain()
    assert harness.units["s"].instances[0].state is State.EXITED


def test_stopped_service_stays_down(bench: Make) -> None:
    """A service that was stopped on request is not started because its command changed."""
    harness = bench(SERVICE)
    change = harness.committer.change()
    harness.controller.stop(harness.units["s"], change)
    harness.committer.commit(change)
    harness.drain()
    message = harness.done(SERVICE.replace("sleep 9", "sleep 10"))
    assert message["changed"][0]["reasons"] == ["run: applies when the service is started"]
    assert ids(harness, "s") == []
    assert harness.task_row("s").stopped


def test_removal_ends_a_rolling_restart(bench: Make) -> None:
    """Removing a service ends its rolling restart, which does not affect a task of the same name."""
    slow = SERVICE.replace('"0s"', '"1h"') + "instances = 2\n"
    for after in ("", '[tasks.s]\nrun = "true"\n'):
        harness = bench(slow)
        harness.done(slow.replace("sleep 9", "sleep 1"))
        assert harness.task_row("s").rolling is not None
        harness.done(after)
        assert harness.task_row("s").rolling is None


def test_running_task_keeps_its_definition(bench: Make) -> None:
    """A started run keeps its definition, and a waiting run takes the new one."""
    harness = bench('[tasks.t]\nrun = "exit 7"\nexit_codes = [7]\n')
    running, waiting = harness.trigger("t"), harness.trigger("t")
    harness.drain()
    message = harness.done('[tasks.t]\nrun = "true"\ntimeout = "5s"\n')
    assert message["changed"][0]["reasons"] == [
        "run, timeout, exit_codes: applies to the next run, 1 active run is unaffected"
    ]
    harness.exited(running.id, status=7 << 8)
    harness.store.work_all()
    assert harness.row(running).end_reason == "succeeded"
    spawn = next(harness.root.request(frame) for frame in harness.root.sent if frame["op"] == "spawn")
    assert (spawn["run"], spawn["argv"][-1], spawn["timeout_ms"]) == (waiting.id, "true", 5000)


def test_retry_takes_the_new_definition(bench: Make) -> None:
    """The definition of the failed attempt decides whether it is retried, and the retry runs under the new one."""
    text = '[tasks.t]\nrun = "exit 1"\nretry_attempts = 1\nretry_delay = "0s"\n'
    harness = bench(text)
    first = harness.trigger("t")
    harness.drain()
    harness.done(text.replace("exit 1", "exit 2"))
    harness.exited(first.id, status=1 << 8)

    def spawned() -> list[str]:
        harness.loop.round(0)
        harness.store.work_all()
        return [harness.root.request(frame)["argv"][-1] for frame in harness.root.sent if frame["op"] == "spawn"]

    assert until(spawned, "the retry") == ["exit 2"]


def test_removed_task(bench: Make) -> None:
    """An active run of a removed task finishes, waiting runs end as stopped with the reason, and no retry follows."""
    text = '[tasks.t]\nrun = "exit 1"\nretry_attempts = 5\nretry_delay = "1h"\ncron = "0 0 1 1 *"\n'
    harness = bench(text)
    failed = harness.trigger("t")
    harness.drain()
    harness.exited(failed.id, status=1 << 8)
    running, waiting = harness.trigger("t"), harness.trigger("t")
    harness.drain()
    retry = next(iter(harness.units["t"].waiting.values()))
    timer = harness.units["t"].timer
    message = harness.done("")
    assert message["removed"] == ["t"]
    assert message["warnings"] == ["t is removed: 1 run continues to its end, 2 waiting runs are stopped"]
    for run in (waiting, retry):
        row = harness.row(run)
        assert (row.end_reason, row.stopped_by) == ("stopped", "no longer configured")
    assert timer is not None
    assert timer.cancelled
    assert harness.row(running).status == "running"
    harness.exited(running.id, status=1 << 8)
    harness.drain()
    assert harness.row(running).end_reason == "failed"
    assert not harness.engine.live
    assert not harness.task_row("t").configured


def test_task_added_again_while_it_drains(bench: Make) -> None:
    """Old runs of a task that is added again count towards max_concurrent."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    running = harness.trigger("t")
    harness.drain()
    harness.done("")
    harness.done('[tasks.t]\nrun = "false"\n')
    later = harness.trigger("t")
    harness.drain()
    assert list(harness.units["t"].queue) == [later]
    harness.exited(running.id)
    harness.drain()
    assert harness.row(later).status == "running"
    assert harness.row(running).end_reason == "succeeded"


def test_removed_service(bench: Make) -> None:
    """A removed service is stopped and leaves nothing behind."""
    harness = bench(f"{SERVICE}instances = 2\n")
    assert harness.done("")["warnings"] == ["s is removed: 2 instances are stopped"]
    assert not harness.engine.live
    assert harness.instances() == []
    assert "s" not in harness.units


def test_task_becomes_a_service(bench: Make) -> None:
    """If a task becomes a service, its run finishes; if a service becomes a task, its instances are stopped."""
    harness = bench('[tasks.s]\nrun = "true"\ncron = "0 0 1 1 *"\n')
    running = harness.trigger("s")
    harness.drain()
    message = harness.done(SERVICE)
    assert message["changed"] == [{"name": "s", "reasons": ["the task became a service: 1 run continues to its end"]}]
    assert len(harness.alive("s")) == 2
    assert (harness.task_row("s").kind, harness.task_row("s").next_run_at) == ("service", None)
    harness.exited(running.id)
    harness.drain()
    assert harness.row(running).kind == "task"
    assert [run.unit.service is not None for run in harness.alive("s")] == [True]
    harness.done('[tasks.s]\nrun = "true"\n')
    assert harness.alive("s") == []
    assert (harness.task_row("s").kind, harness.instances()) == ("task", [])


def test_new_schedule_does_not_catch_up(bench: Make) -> None:
    """A new schedule counts from the reload, and does not run a processed instant again."""
    now_ms = int(datetime(2100, 5, 1, 12, 30, tzinfo=UTC).timestamp() * 1000)
    harness = bench('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 3 * * *"\n')
    harness.loop.now_ms = lambda: now_ms  # type: ignore[method-assign]
    harness.units["t"].last_instant = now_ms - 9 * HOUR_MS - HOUR_MS // 2
    text = '[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 * * * *"\n'
    message = harness.done(text)
    assert message["changed"][0]["reasons"] == ["cron: the new schedule counts from now, without catch-up"]
    row = harness.task_row("t")
    assert (row.last_instant, row.next_run_at) == (now_ms, now_ms + HOUR_MS // 2)
    assert runs_from(harness.store.database, "t", 0, "", 10) == []
    harness.done(text.replace('timezone = "UTC"', 'timezone = "Asia/Kolkata"'))
    assert harness.task_row("t").next_run_at == now_ms + HOUR_MS
    harness.done('[tasks.t]\nrun = "true"\n')
    assert harness.task_row("t").next_run_at is None
    assert harness.units["t"].timer is None


def test_time_zone_does_not_move_an_interval(bench: Make) -> None:
    """A reload that only changes the daemon's time zone leaves intervals where they are."""
    text = '[daemon]\ntimezone = "{}"\n[tasks.t]\nrun = "true"\nevery = "1h"\n'
    harness = bench(text.format("UTC"))
    stored = harness.task_row("t").last_instant
    harness.units["t"].last_instant = mark = harness.loop.now_ms() - HOUR_MS // 2
    message = harness.done(text.format("Asia/Tokyo"))
    assert message["changed"][0]["reasons"] == ["timezone: applies at once"]
    assert harness.units["t"].last_instant == mark
    assert harness.task_row("t").last_instant == stored


def test_interrupted_reload_of_a_schedule(bench: Make) -> None:
    """A new definition is stored together with the time from which it counts."""
    harness = bench('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 3 * * *"\n')
    now_ms = int(datetime(2100, 5, 1, 12, 30, tzinfo=UTC).timestamp() * 1000)
    harness.loop.now_ms = lambda: now_ms  # type: ignore[method-assign]
    harness.units["t"].last_instant = now_ms - 9 * HOUR_MS
    harness.write('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 * * * *"\n')
    harness.ask()
    harness.read()
    harness.store.work()
    row = harness.task_row("t")
    assert ("0 * * * *" in row.definition, row.last_instant) == (True, now_ms)


def test_due_instant_is_not_lost(bench: Make) -> None:
    """An instant just before the reload still runs once under a changed schedule."""
    harness = bench('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 3 * * *"\n')
    now_ms = int(datetime(2100, 5, 1, 3, 0, 0, 100_000, tzinfo=UTC).timestamp() * 1000)
    harness.units["t"].last_instant = now_ms - HOUR_MS
    harness.loop.now_ms = lambda: now_ms  # type: ignore[method-assign]
    harness.done('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = ["0 3 * * *", "0 4 * * *"]\n')
    assert [run.scheduled_at for run in harness.alive("t")] == [now_ms - 100]
    assert harness.task_row("t").next_run_at == now_ms - 100 + HOUR_MS


def test_new_task_has_missed_nothing(bench: Make) -> None:
    """A task that was removed and is added again has missed nothing."""
    text = '[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 0 1 1 *"\n'
    harness = bench(text)
    harness.done("")
    now_ms = harness.loop.now_ms() + 20_000 * HOUR_MS
    harness.loop.now_ms = lambda: now_ms  # type: ignore[method-assign]
    assert harness.done(text)["added"] == ["t"]
    assert harness.alive("t") == []
    assert harness.task_row("t").last_instant == now_ms


def test_interrupted_reload_of_a_new_task(bench: Make) -> None:
    """A task added again by an interrupted reload is new to the next scheduler, and does not catch up."""
    text = '[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 0 1 1 *"\n'
    harness = bench(text)
    harness.done("")
    harness.write(text)
    harness.ask()
    harness.read()
    harness.store.work()
    row = harness.task_row("t")
    assert (row.configured, row.last_instant) == (True, None)


def test_paused_schedule_stays_paused(bench: Make) -> None:
    """A paused schedule stays paused when it changes."""
    harness = bench('[tasks.t]\nrun = "true"\ncron = "0 3 * * *"\n')
    unit = harness.units["t"]
    unit.paused = True
    change = harness.committer.change()
    harness.scheduled_starts.pause(unit, change)
    harness.committer.commit(change)
    harness.done('[tasks.t]\nrun = "true"\ncron = "0 4 * * *"\n')
    assert harness.units["t"].paused
    assert harness.units["t"].timer is None
    assert harness.task_row("t").next_run_at is None


def test_changed_max_concurrent(bench: Make) -> None:
    """A queue moves on when max_concurrent grows, and nothing is stopped when it shrinks."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    several = [harness.trigger("t") for _ in range(3)]
    harness.drain()
    harness.done('[tasks.t]\nrun = "true"\nmax_concurrent = 3\n')
    assert {run.state for run in several} == {run_transitions.State.RUNNING}
    harness.done('[tasks.t]\nrun = "true"\n')
    assert {run.state for run in several} == {run_transitions.State.RUNNING}


def test_invalid_file(bench: Make) -> None:
    """An invalid file changes nothing, and all its errors are reported with file, line and key."""
    harness = bench(SERVICE)
    before, config = ids(harness, "s"), harness.active.resolved
    answer = harness.reload(f'{SERVICE}instances = 0\n[tasks.t]\nrum = "true"\n')
    assert (answer["ok"], answer["status"]) == (False, 422)
    assert [(error["value"]["file"], error["value"]["line"], error["value"]["key"]) for error in answer["errors"]] == [
        (str(harness.path), 4, "services.s.instances"),
        (str(harness.path), 5, "tasks.t"),
        (str(harness.path), 6, "tasks.t.rum"),
    ]
    assert answer["errors"][0]["location"] == f"{harness.path}:4: services.s.instances"
    assert harness.active.resolved is config
    assert (ids(harness, "s"), set(harness.units)) == (before, {"s"})


def test_unchangeable_setting_is_refused(bench: Make) -> None:
    """A reload or dry run with a setting that needs a new daemon is refused as a whole, with the reason."""
    harness = bench("")
    for dry_run in (True, False):
        answer = harness.reload('[http]\nsocket = "elsewhere.sock"\n[tasks.t]\nrun = "true"\n', dry_run=dry_run)
        assert answer["status"] == 409
        assert answer["errors"][0]["location"] == f"{harness.path}:2: http.socket"
        assert "restart the daemon" in answer["errors"][0]["message"]
    assert not harness.units


def test_dry_run(bench: Make) -> None:
    """A dry run reports the effects of a reload, and does nothing."""
    harness = bench(f'{SERVICE}instances = 2\n[tasks.t]\nrun = "true"\n')
    before = ids(harness, "s")
    service = SERVICE.replace("sleep 9", "sleep 1")
    text = f'[tasks.n]\nrun = "true"\n{service}instances = 2\n[storage]\nundo_window = "2h"\n'
    message = harness.done(text, dry_run=True)
    assert message == {
        "added": ["n"],
        "changed": [
            {"name": "[storage]", "reasons": ["undo_window: applies at once"]},
            {"name": "s", "reasons": ["run: 2 instances are restarted, one after the other"]},
        ],
        "removed": ["t"],
        "warnings": [],
    }
    assert (ids(harness, "s"), set(harness.units), harness.applied) == (before, {"s", "t"}, [])
    assert harness.done(text) == message
    assert harness.applied[0].config.storage.undo_window_ms == 2 * HOUR_MS


def test_dry_run_of_changed_calendars(bench: Make) -> None:
    """A dry run names the tasks that a changed calendar, or another shift, gives other times; the others stay out."""
    tasks = "".join(
        f'[tasks.{name}]\nrun = "true"\ncron = "0 6 * * *"\n{keys}\n'
        for name, keys in (
            ("bank", 'skip_on = "bank"'),
            ("both", 'skip_on = ["weekend", "bank"]\nshift = "next"'),
            ("week", 'skip_on = "weekend"'),
            ("free", ""),
        )
    )
    harness = bench(f'{tasks}[calendars.bank]\ndates = ["2030-01-02"]\n')
    day = harness.done(f'{tasks}[calendars.bank]\ndates = ["2030-01-02", "2030-01-03"]\n', dry_run=True)
    assert [changed["name"] for changed in day["changed"]] == ["[calendars]", "bank", "both"]
    assert [changed["reasons"] for changed in day["changed"][1:]] == [
        ["skip_on: the new schedule counts from now, without catch-up"]
    ] * 2
    shift = harness.done(f'{tasks.replace("next", "previous")}[calendars.bank]\ndates = ["2030-01-02"]\n', dry_run=True)
    assert [(changed["name"], changed["reasons"]) for changed in shift["changed"]] == [
        ("both", ["shift: the new schedule counts from now, without catch-up"])
    ]


def test_failing_store(bench: Make) -> None:
    """A reload that cannot be stored gets 503 and changes nothing, and the next reload applies all changes."""
    harness = bench(SERVICE)
    before = ids(harness, "s")
    text = f'{SERVICE.replace("sleep 9", "sleep 1")}[tasks.t]\nrun = "true"\n'
    harness.write(text)
    answers = harness.ask()
    harness.read()
    harness.store.fail(DiskFull())
    assert answers[0]["status"] == 503
    assert (ids(harness, "s"), set(harness.units)) == (before, {"s"})
    assert harness.done(text)["added"] == ["t"]


def test_one_reload_at_a_time(bench: Make) -> None:
    """Simultaneous reloads are carried out in turn, and the later ones find no change."""
    harness = bench("")
    harness.write('[tasks.t]\nrun = "true"\n')
    several = [harness.ask() for _ in range(3)]
    added_names = [harness.stored(answers)["result"]["added"] for answers in several]
    assert added_names == [["t"], [], []]


def test_stale_configuration_is_reported_once(bench: Make) -> None:
    """A changed file is reported once, within 2 s; a reload ends that, and the next change is reported again."""
    harness = bench("")
    for number in range(2):
        harness.write(f"# {number} changed\n")
        for seconds, stale in ((1.9, False), (0.1, True), (2.0, True)):
            harness.file_steps.let_pass(seconds)
            harness.loop.round(0)
            harness.drain()
            assert harness.info.get("config_stale", False) is stale
        events = harness.store.database.rows("SELECT COUNT(*) FROM outbox WHERE kind = 'config.stale'")
        assert events == [(number + 1,)]
        harness.done(f"# {number} changed\n")
        assert harness.info["config_stale"] is False
    notifications = harness.store.database.rows("SELECT kind, times FROM notifications")
    assert notifications == [("config.stale", 2)]


# Random edits.


def random_text(chance: random.Random) -> str:
    parts = []
    if chance.random() < 0.3:
        parts.append(f"[defaults]\nkeep_runs = {chance.randint(1, 3)}\n")
    if chance.random() < 0.3:
        parts.append(f'[storage]\nundo_window = "{chance.randint(1, 3)}h"\n')
    for name in "abcdef":
        kind = chance.choice(("task", "task", "service", "none"))
        if kind == "task":
            parts.append(f'[tasks.{name}]\nrun = "exit {chance.randint(0, 2)}"\n')
            parts.append(chance.choice(("", 'cron = "0 0 1 1 *"\n', 'cron = ["0 3 29 2 *", "0 0 1 1 *"]\n')))
            parts.append(chance.choice(("", 'timezone = "Asia/Tokyo"\n')))
            parts.append(chance.choice(("", "max_concurrent = 2\n", 'description = "x"\n')))
        elif kind == "service":
            parts.append(f'[services.{name}]\nrun = "sleep {chance.randint(1, 2)}"\nhealthy_after = "0s"\n')
            parts.append(f"instances = {chance.randint(1, 4)}\n")
            parts.append(chance.choice(("", 'env = { A = "1" }\n', "restart_attempts = 9\n")))
    return "".join(parts)


def state(harness: ReloadBench) -> tuple[object, ...]:
    """Return the state that does not depend on times and history."""
    rows = [row._replace(last_instant=None, last_run_id=None) for row in harness.tasks()]
    expected = {
        name: (
            unit.definition,
            unit.paused,
            [(place.index, place.state) for place in unit.instances],
            unit.timer is None,
        )
        for name, unit in harness.units.items()
    }
    places = [(row.task_name, row.instance_index, row.state) for row in harness.instances()]
    alive = sorted(
        (run.unit.name, run.instance, harness.recipes[run.id])
        for run in harness.engine.live.values()
        if run.unit.service
    )
    resolved = harness.active.resolved.config
    sections = (
        resolved.daemon,
        resolved.http,
        resolved.storage,
        resolved.notify,
        resolved.keep_runs,
        resolved.keep_for_ms,
        resolved.keep_refused,
    )
    return rows, expected, places, alive, sections


def test_random_edits(bench: Make, tmp_path: Path) -> None:
    """After each edit the state is the same as after a fresh start with the same file."""
    chance = random.Random(20261121)
    harness = bench(random_text(chance))
    for number in range(40):
        text = random_text(chance)
        for name in chance.sample(sorted(harness.units), min(2, len(harness.units))):
            if harness.units[name].task is not None:
                harness.trigger(name)
        harness.done(text)
        fresh = harness.fresh(tmp_path / str(number))
        with contextlib.closing(fresh):
            for actual, expected in zip(state(harness), state(fresh), strict=True):
                assert actual == expected, text


def test_many_changed_schedules(bench: Make) -> None:
    """Other timers fire between changed schedules, and in the end each task waits for its new time."""

    def text(minute: int) -> str:
        return "".join(f'[tasks.t{n}]\nrun = "true"\ncron = "{(n + minute) % 60} 3 1 1 *"\n' for n in range(1000))

    harness = bench(text(0))
    rounds = 0

    def count() -> None:
        nonlocal rounds
        rounds += 1
        harness.loop.after(0, count)

    harness.write(text(1))
    answers = harness.ask()
    harness.read()
    harness.store.work_all()
    harness.loop.after(0, count)
    assert len(harness.stored(answers)["result"]["changed"]) == 1000
    assert rounds >= 4
    due = {name: next(unit.schedule.occurrences(harness.loop.now_ms())).at for name, unit in harness.units.items()}
    assert {row.name: row.next_run_at for row in harness.tasks()} == due


def test_a_shutdown_during_a_reload(bench: Make) -> None:
    """If a shutdown begins before anything is stored, the reload is refused with 503, and nothing is changed."""
    harness = bench(SERVICE)
    rows = harness.tasks()
    harness.write(f'{SERVICE}[tasks.t]\nrun = "true"\n')
    answers = harness.ask()
    harness.daemon.ending = True
    answer = harness.stored(answers)
    assert (answer["ok"], answer["status"]) == (False, 503)
    assert harness.tasks() == rows


def test_a_shutdown_after_definitions_were_stored(bench: Make) -> None:
    """If a shutdown begins later, the report has a warning: the changes take effect when the daemon starts again."""
    harness = bench('[tasks.t]\nrun = "true"\n')
    harness.write(f'[tasks.t]\nrun = "false"\n{SERVICE}')
    answers = harness.ask()
    harness.read()
    harness.daemon.ending = True
    answer = harness.stored(answers)
    assert answer["ok"], answer
    assert (answer["result"]["added"], harness.task_row("s").configured) == (["s"], True)
    assert answer["result"]["warnings"] == ["the daemon is shutting down: the changes take effect at its next start"]
    assert ids(harness, "s") == []
