import contextlib
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from store.errors import DiskFull
from store.runs.writes import runs_from
from supervisor.config.diff import process_hash
from supervisor.scheduler.reload import config_files
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.reload_bench import ReloadBench
from tests.support.waiting import until

Make = Callable[[str], ReloadBench]

SERVICE = '[services.s]\nrun = "sleep 9"\nhealthy_after = "0s"\n'
HOUR_MS = 3_600_000


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a bench that reloads its configuration only on request, without polling the file."""
    monkeypatch.setattr(config_files, "_POLL_S", 3600.0)
    with contextlib.ExitStack() as stack:

        def make(text: str) -> ReloadBench:
            one = ReloadBench(tmp_path, text)
            stack.callback(one.close)
            return one

        yield make


def ids(one: ReloadBench, name: str) -> list[str]:
    return sorted(run.id for run in one.alive(name))


def test_unchanged_file(bench: Make) -> None:
    """A reload of an unchanged file changes no run and no task row, only the time of the reload."""
    text = f'{SERVICE}instances = 2\n[tasks.t]\nrun = "true"\ncron = "0 0 1 1 *"\n'
    one = bench(text)
    before, rows = ids(one, "s"), one.tasks()
    timer = one.units["t"].timer
    assert one.done(text) == {"added": [], "changed": [], "removed": [], "warnings": []}
    assert (ids(one, "s"), one.tasks()) == (before, rows)
    assert one.units["t"].timer is timer
    assert one.info["config_loaded_at"] > 0


@pytest.mark.parametrize("dry_run", [False, True])
def test_warnings(bench: Make, dry_run: bool) -> None:
    """The report has the warnings about the new configuration, with file, line and remedy."""
    text = '[tasks.backup]\nrun = "true"\n'
    one = bench(text)
    one.write(f'{text}[http]\npublic = ["bakcup"]\n')
    answers = one.ask(dry_run=dry_run)
    warning = 'ringward.toml:4: http.public[0]: no task or service named "bakcup"\n  did you mean "backup"?'
    (found,) = one.stored(answers)["result"]["warnings"]
    assert found.endswith(warning)


def test_unchanged_tasks_cost_nothing(bench: Make) -> None:
    """Any number of unchanged tasks costs neither a write nor a timer."""
    text = "".join(f'[tasks.t{number}]\nrun = "true"\ncron = "0 0 1 1 *"\n' for number in range(500))
    one = bench(text)
    timers = [unit.timer for unit in one.units.values()]
    one.write(f'{text}[tasks.new]\nrun = "true"\n')
    answers = one.ask()
    one.read()
    assert len(one.store.jobs) == 1
    assert one.stored(answers)["result"]["added"] == ["new"]
    assert [one.units[f"t{number}"].timer for number in range(500)] == timers


def test_only_changed_services_restart(bench: Make) -> None:
    """A service with a changed command is restarted, and the other services are not."""
    one = bench(f'{SERVICE}[services.other]\nrun = "sleep 9"\n')
    before, other = ids(one, "s"), ids(one, "other")
    found = one.done(f'{SERVICE.replace("sleep 9", "sleep 10")}[services.other]\nrun = "sleep 9"\n')
    assert found["changed"] == [{"name": "s", "reasons": ["run: 1 instance is restarted"]}]
    assert ids(one, "other") == other
    assert ids(one, "s") != before
    assert [one.recipes[run.id] for run in one.alive("s")] == [process_hash(one.units["s"].definition)]


def test_instances(bench: Make) -> None:
    """The number of instances changes live, and the remaining instances are not touched."""
    one = bench(f"{SERVICE}instances = 2\n")
    first = ids(one, "s")
    assert one.done(f"{SERVICE}instances = 3\n")["changed"][0]["reasons"] == ["instances: 1 more is started"]
    assert len(ids(one, "s")) == 3
    assert set(first) < set(ids(one, "s"))
    assert one.done(f"{SERVICE}instances = 1\n")["changed"][0]["reasons"] == ["instances: 2 are stopped"]
    assert ids(one, "s") == [run.id for run in one.alive("s") if run.instance == 0]
    assert [row.instance_index for row in one.instances()] == [0]


def test_changed_policy(bench: Make) -> None:
    """A policy about the end of a process changes without a restart, and applies to the running process."""
    one = bench(SERVICE)
    before = ids(one, "s")
    text = f'{SERVICE}restart = "never"\nexit_codes = [7]\n'
    assert one.done(text)["changed"][0]["reasons"] == ["restart, exit_codes: applies at once"]
    assert ids(one, "s") == before
    one.exited(before[0], status=7 << 8)
    one.drain()
    assert one.units["s"].instances[0].state is State.EXITED


def test_stopped_service_stays_down(bench: Make) -> None:
    """A service that was stopped on request is not started because its command changed."""
    one = bench(SERVICE)
    change = one.committer.change()
    one.controller.stop(one.units["s"], change)
    one.committer.commit(change)
    one.drain()
    found = one.done(SERVICE.replace("sleep 9", "sleep 10"))
    assert found["changed"][0]["reasons"] == ["run: applies when the service is started"]
    assert ids(one, "s") == []
    assert one.task_row("s").stopped


def test_removal_ends_a_rolling_restart(bench: Make) -> None:
    """Removing a service ends its rolling restart, which does not affect a task of the same name."""
    slow = SERVICE.replace('"0s"', '"1h"') + "instances = 2\n"
    for after in ("", '[tasks.s]\nrun = "true"\n'):
        one = bench(slow)
        one.done(slow.replace("sleep 9", "sleep 1"))
        assert one.task_row("s").rolling is not None
        one.done(after)
        assert one.task_row("s").rolling is None


def test_running_task_keeps_its_definition(bench: Make) -> None:
    """A started run keeps its definition, and a waiting run takes the new one."""
    one = bench('[tasks.t]\nrun = "exit 7"\nexit_codes = [7]\n')
    running, waiting = one.trigger("t"), one.trigger("t")
    one.drain()
    found = one.done('[tasks.t]\nrun = "true"\ntimeout = "5s"\n')
    assert found["changed"][0]["reasons"] == [
        "run, timeout, exit_codes: applies to the next run, 1 active run is unaffected"
    ]
    one.exited(running.id, status=7 << 8)
    one.store.work_all()
    assert one.row(running).end_reason == "succeeded"
    spawn = next(frame["spawn"] for frame in one.root.sent if frame["op"] == "spawn")
    assert (spawn["run"], spawn["argv"][-1], spawn["timeout_ms"]) == (waiting.id, "true", 5000)


def test_retry_takes_the_new_definition(bench: Make) -> None:
    """The definition of the failed attempt decides whether it is retried, and the retry runs under the new one."""
    text = '[tasks.t]\nrun = "exit 1"\nretry_attempts = 1\nretry_delay = "0s"\n'
    one = bench(text)
    first = one.trigger("t")
    one.drain()
    one.done(text.replace("exit 1", "exit 2"))
    one.exited(first.id, status=1 << 8)

    def spawned() -> list[str]:
        one.loop.round(0.001)
        one.store.work_all()
        return [frame["spawn"]["argv"][-1] for frame in one.root.sent if frame["op"] == "spawn"]

    assert until(spawned, "the retry") == ["exit 2"]


def test_removed_task(bench: Make) -> None:
    """An active run of a removed task finishes, waiting runs end as stopped with the reason, and no retry follows."""
    text = '[tasks.t]\nrun = "exit 1"\nretry_attempts = 5\nretry_delay = "1h"\ncron = "0 0 1 1 *"\n'
    one = bench(text)
    failed = one.trigger("t")
    one.drain()
    one.exited(failed.id, status=1 << 8)
    running, waiting = one.trigger("t"), one.trigger("t")
    one.drain()
    retry = next(iter(one.units["t"].waiting.values()))
    timer = one.units["t"].timer
    found = one.done("")
    assert found["removed"] == ["t"]
    assert found["warnings"] == ["t is removed: 1 run continues to its end, 2 waiting runs are stopped"]
    for run in (waiting, retry):
        row = one.row(run)
        assert (row.end_reason, row.stopped_by) == ("stopped", "no longer configured")
    assert timer is not None
    assert timer.cancelled
    assert one.row(running).status == "running"
    one.exited(running.id, status=1 << 8)
    one.drain()
    assert one.row(running).end_reason == "failed"
    assert not one.engine.live
    assert not one.task_row("t").configured


def test_task_added_again_while_it_drains(bench: Make) -> None:
    """Old runs of a task that is added again count towards max_concurrent."""
    one = bench('[tasks.t]\nrun = "true"\n')
    running = one.trigger("t")
    one.drain()
    one.done("")
    one.done('[tasks.t]\nrun = "false"\n')
    later = one.trigger("t")
    one.drain()
    assert list(one.units["t"].queue) == [later]
    one.exited(running.id)
    one.drain()
    assert one.row(later).status == "running"
    assert one.row(running).end_reason == "succeeded"


def test_removed_service(bench: Make) -> None:
    """A removed service is stopped and leaves nothing behind."""
    one = bench(f"{SERVICE}instances = 2\n")
    assert one.done("")["warnings"] == ["s is removed: 2 instances are stopped"]
    assert not one.engine.live
    assert one.instances() == []
    assert "s" not in one.units


def test_task_becomes_a_service(bench: Make) -> None:
    """If a task becomes a service, its run finishes; if a service becomes a task, its instances are stopped."""
    one = bench('[tasks.s]\nrun = "true"\ncron = "0 0 1 1 *"\n')
    running = one.trigger("s")
    one.drain()
    found = one.done(SERVICE)
    assert found["changed"] == [{"name": "s", "reasons": ["the task became a service: 1 run continues to its end"]}]
    assert len(one.alive("s")) == 2
    assert (one.task_row("s").kind, one.task_row("s").next_run_at) == ("service", None)
    one.exited(running.id)
    one.drain()
    assert one.row(running).kind == "task"
    assert [run.unit.service is not None for run in one.alive("s")] == [True]
    one.done('[tasks.s]\nrun = "true"\n')
    assert one.alive("s") == []
    assert (one.task_row("s").kind, one.instances()) == ("task", [])


def test_new_schedule_does_not_catch_up(bench: Make) -> None:
    """A new schedule counts from the reload, and does not run a processed instant again."""
    now_ms = int(datetime(2100, 5, 1, 12, 30, tzinfo=UTC).timestamp() * 1000)
    one = bench('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 3 * * *"\n')
    one.loop.now_ms = lambda: now_ms  # type: ignore[method-assign]
    one.units["t"].last_instant = now_ms - 9 * HOUR_MS - HOUR_MS // 2
    text = '[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 * * * *"\n'
    found = one.done(text)
    assert found["changed"][0]["reasons"] == ["cron: the new schedule counts from now, without catch-up"]
    row = one.task_row("t")
    assert (row.last_instant, row.next_run_at) == (now_ms, now_ms + HOUR_MS // 2)
    assert runs_from(one.store.database, "t", 0, "", 10) == []
    one.done(text.replace('timezone = "UTC"', 'timezone = "Asia/Kolkata"'))
    assert one.task_row("t").next_run_at == now_ms + HOUR_MS
    one.done('[tasks.t]\nrun = "true"\n')
    assert one.task_row("t").next_run_at is None
    assert one.units["t"].timer is None


def test_time_zone_does_not_move_an_interval(bench: Make) -> None:
    """A reload that only changes the daemon's time zone leaves intervals where they are."""
    text = '[daemon]\ntimezone = "{}"\n[tasks.t]\nrun = "true"\nevery = "1h"\n'
    one = bench(text.format("UTC"))
    stored = one.task_row("t").last_instant
    one.units["t"].last_instant = mark = one.loop.now_ms() - HOUR_MS // 2
    found = one.done(text.format("Asia/Tokyo"))
    assert found["changed"][0]["reasons"] == ["timezone: applies at once"]
    assert one.units["t"].last_instant == mark
    assert one.task_row("t").last_instant == stored


def test_interrupted_reload_of_a_schedule(bench: Make) -> None:
    """A new definition is stored together with the time from which it counts."""
    one = bench('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 3 * * *"\n')
    now_ms = int(datetime(2100, 5, 1, 12, 30, tzinfo=UTC).timestamp() * 1000)
    one.loop.now_ms = lambda: now_ms  # type: ignore[method-assign]
    one.units["t"].last_instant = now_ms - 9 * HOUR_MS
    one.write('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 * * * *"\n')
    one.ask()
    one.read()
    one.store.work()
    row = one.task_row("t")
    assert ("0 * * * *" in row.definition, row.last_instant) == (True, now_ms)


def test_due_instant_is_not_lost(bench: Make) -> None:
    """An instant just before the reload still runs once under a changed schedule."""
    one = bench('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 3 * * *"\n')
    now_ms = int(datetime(2100, 5, 1, 3, 0, 0, 100_000, tzinfo=UTC).timestamp() * 1000)
    one.units["t"].last_instant = now_ms - HOUR_MS
    one.loop.now_ms = lambda: now_ms  # type: ignore[method-assign]
    one.done('[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = ["0 3 * * *", "0 4 * * *"]\n')
    assert [run.scheduled_at for run in one.alive("t")] == [now_ms - 100]
    assert one.task_row("t").next_run_at == now_ms - 100 + HOUR_MS


def test_new_task_has_missed_nothing(bench: Make) -> None:
    """A task that was removed and is added again has missed nothing."""
    text = '[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 0 1 1 *"\n'
    one = bench(text)
    one.done("")
    now_ms = one.loop.now_ms() + 20_000 * HOUR_MS
    one.loop.now_ms = lambda: now_ms  # type: ignore[method-assign]
    assert one.done(text)["added"] == ["t"]
    assert one.alive("t") == []
    assert one.task_row("t").last_instant == now_ms


def test_interrupted_reload_of_a_new_task(bench: Make) -> None:
    """A task added again by an interrupted reload is new to the next scheduler, and does not catch up."""
    text = '[tasks.t]\nrun = "true"\ntimezone = "UTC"\ncron = "0 0 1 1 *"\n'
    one = bench(text)
    one.done("")
    one.write(text)
    one.ask()
    one.read()
    one.store.work()
    row = one.task_row("t")
    assert (row.configured, row.last_instant) == (True, None)


def test_paused_schedule_stays_paused(bench: Make) -> None:
    """A paused schedule stays paused when it changes."""
    one = bench('[tasks.t]\nrun = "true"\ncron = "0 3 * * *"\n')
    unit = one.units["t"]
    unit.paused = True
    change = one.committer.change()
    one.scheduled_starts.pause(unit, change)
    one.committer.commit(change)
    one.done('[tasks.t]\nrun = "true"\ncron = "0 4 * * *"\n')
    assert one.units["t"].paused
    assert one.units["t"].timer is None
    assert one.task_row("t").next_run_at is None


def test_changed_max_concurrent(bench: Make) -> None:
    """A queue moves on when max_concurrent grows, and nothing is stopped when it shrinks."""
    one = bench('[tasks.t]\nrun = "true"\n')
    several = [one.trigger("t") for _ in range(3)]
    one.drain()
    one.done('[tasks.t]\nrun = "true"\nmax_concurrent = 3\n')
    assert {run.state for run in several} == {run_transitions.State.RUNNING}
    one.done('[tasks.t]\nrun = "true"\n')
    assert {run.state for run in several} == {run_transitions.State.RUNNING}


def test_invalid_file(bench: Make) -> None:
    """An invalid file changes nothing, and all its errors are reported with file, line and key."""
    one = bench(SERVICE)
    before, config = ids(one, "s"), one.active.resolved
    answer = one.reload(f'{SERVICE}instances = 0\n[tasks.t]\nrum = "true"\n')
    assert (answer["ok"], answer["status"]) == (False, 422)
    assert [(error["value"]["file"], error["value"]["line"], error["value"]["key"]) for error in answer["errors"]] == [
        (str(one.path), 4, "services.s.instances"),
        (str(one.path), 5, "tasks.t"),
        (str(one.path), 6, "tasks.t.rum"),
    ]
    assert answer["errors"][0]["location"] == f"{one.path}:4: services.s.instances"
    assert one.active.resolved is config
    assert (ids(one, "s"), set(one.units)) == (before, {"s"})


def test_unchangeable_setting_is_refused(bench: Make) -> None:
    """A reload or dry run with a setting that needs a new daemon is refused as a whole, with the reason."""
    one = bench("")
    for dry_run in (True, False):
        answer = one.reload('[http]\nsocket = "elsewhere.sock"\n[tasks.t]\nrun = "true"\n', dry_run=dry_run)
        assert answer["status"] == 409
        assert answer["errors"][0]["location"] == f"{one.path}:2: http.socket"
        assert "restart the daemon" in answer["errors"][0]["message"]
    assert not one.units


def test_dry_run(bench: Make) -> None:
    """A dry run reports the effects of a reload, and does nothing."""
    one = bench(f'{SERVICE}instances = 2\n[tasks.t]\nrun = "true"\n')
    before = ids(one, "s")
    service = SERVICE.replace("sleep 9", "sleep 1")
    text = f'[tasks.n]\nrun = "true"\n{service}instances = 2\n[storage]\nundo_window = "2h"\n'
    found = one.done(text, dry_run=True)
    assert found == {
        "added": ["n"],
        "changed": [
            {"name": "[storage]", "reasons": ["undo_window: applies at once"]},
            {"name": "s", "reasons": ["run: 2 instances are restarted, one after the other"]},
        ],
        "removed": ["t"],
        "warnings": [],
    }
    assert (ids(one, "s"), set(one.units), one.applied) == (before, {"s", "t"}, [])
    assert one.done(text) == found
    assert one.applied[0].config.storage.undo_window_ms == 2 * HOUR_MS


def test_failing_store(bench: Make) -> None:
    """A reload that cannot be stored gets 503 and changes nothing, and the next reload applies all changes."""
    one = bench(SERVICE)
    before = ids(one, "s")
    text = f'{SERVICE.replace("sleep 9", "sleep 1")}[tasks.t]\nrun = "true"\n'
    one.write(text)
    answers = one.ask()
    one.read()
    one.store.fail(DiskFull())
    assert answers[0]["status"] == 503
    assert (ids(one, "s"), set(one.units)) == (before, {"s"})
    assert one.done(text)["added"] == ["t"]


def test_one_reload_at_a_time(bench: Make) -> None:
    """Simultaneous reloads are carried out in turn, and the later ones find no change."""
    one = bench("")
    one.write('[tasks.t]\nrun = "true"\n')
    several = [one.ask() for _ in range(3)]
    found = [one.stored(answers)["result"]["added"] for answers in several]
    assert found == [["t"], [], []]


def test_stale_configuration_is_reported_once(bench: Make) -> None:
    """A changed file is reported once; a reload ends that, and the next change is reported again."""
    one = bench("")
    for number in range(2):
        one.write(f"# {number} changed\n")
        for _ in range(2):
            one.files._check(one.config if not number else one.applied[-1].config)
            one.loop.round(0)
            one.drain()
        assert one.info["config_stale"] is True
        events = one.store.database.rows("SELECT COUNT(*) FROM outbox WHERE kind = 'config.stale'")
        assert events == [(number + 1,)]
        one.done(f"# {number} changed\n")
        assert one.info["config_stale"] is False
    notifications = one.store.database.rows("SELECT kind, times FROM notifications")
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


def state(one: ReloadBench) -> tuple[object, ...]:
    """Return the state that does not depend on times and history."""
    rows = [row._replace(last_instant=None, last_run_id=None) for row in one.tasks()]
    wanted = {
        name: (
            unit.definition,
            unit.paused,
            [(place.index, place.state) for place in unit.instances],
            unit.timer is None,
        )
        for name, unit in one.units.items()
    }
    places = [(row.task_name, row.instance_index, row.state) for row in one.instances()]
    alive = sorted(
        (run.unit.name, run.instance, one.recipes[run.id]) for run in one.engine.live.values() if run.unit.service
    )
    resolved = one.active.resolved.config
    sections = (
        resolved.daemon,
        resolved.http,
        resolved.storage,
        resolved.notify,
        resolved.keep_runs,
        resolved.keep_for_ms,
        resolved.keep_refused,
    )
    return rows, wanted, places, alive, sections


def test_random_edits(bench: Make, tmp_path: Path) -> None:
    """After each edit the state is the same as after a fresh start with the same file."""
    chance = random.Random(20261121)
    one = bench(random_text(chance))
    for number in range(40):
        text = random_text(chance)
        for name in chance.sample(sorted(one.units), min(2, len(one.units))):
            if one.units[name].task is not None:
                one.trigger(name)
        one.done(text)
        fresh = one.fresh(tmp_path / str(number))
        with contextlib.closing(fresh):
            for found, wanted in zip(state(one), state(fresh), strict=True):
                assert found == wanted, text


def test_many_changed_schedules(bench: Make) -> None:
    """Other timers fire between changed schedules, and in the end each task waits for its new time."""

    def text(minute: int) -> str:
        return "".join(f'[tasks.t{n}]\nrun = "true"\ncron = "{(n + minute) % 60} 3 1 1 *"\n' for n in range(1000))

    one = bench(text(0))
    rounds = 0

    def count() -> None:
        nonlocal rounds
        rounds += 1
        one.loop.after(0, count)

    one.write(text(1))
    answers = one.ask()
    one.read()
    one.store.work_all()
    one.loop.after(0, count)
    assert len(one.stored(answers)["result"]["changed"]) == 1000
    assert rounds >= 4
    due = {name: next(unit.schedule.occurrences(one.loop.now_ms())).at for name, unit in one.units.items()}
    assert {row.name: row.next_run_at for row in one.tasks()} == due


def test_a_shutdown_during_a_reload(bench: Make) -> None:
    """If a shutdown begins before anything is stored, the reload is refused with 503, and nothing is changed."""
    one = bench(SERVICE)
    rows = one.tasks()
    one.write(f'{SERVICE}[tasks.t]\nrun = "true"\n')
    answers = one.ask()
    one.daemon.ending = True
    answer = one.stored(answers)
    assert (answer["ok"], answer["status"]) == (False, 503)
    assert one.tasks() == rows


def test_a_shutdown_after_definitions_were_stored(bench: Make) -> None:
    """If a shutdown begins later, the report has a warning: the changes take effect when the daemon starts again."""
    one = bench('[tasks.t]\nrun = "true"\n')
    one.write(f'[tasks.t]\nrun = "false"\n{SERVICE}')
    answers = one.ask()
    one.read()
    one.daemon.ending = True
    answer = one.stored(answers)
    assert answer["ok"], answer
    assert (answer["result"]["added"], one.task_row("s").configured) == (["s"], True)
    assert answer["result"]["warnings"] == ["the daemon is shutting down: the changes take effect at its next start"]
    assert ids(one, "s") == []
