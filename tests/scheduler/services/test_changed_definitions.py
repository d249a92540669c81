"""Changed definitions of running services, and the order of starts and stops."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.live_units import RollingRestart, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.start_order import start_order, stop_levels
from supervisor.scheduler.startup_shutdown.shutdown import Shutdown
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock
from tests.scheduler.service_bench import (
    answer_to,
    ends,
    fails,
    in_time,
    record,
    run_all,
    run_of,
    states,
    stored,
    taken_up,
)
from tests.support.waiting import until

Make = Callable[[str], Bench]
SERVICE = (
    '[services.s]\nrun = "true"\ninstances = 2\nhealthy_after = "0s"\nrestart_delay = "1h"\nrestart_attempts = 0\n'
)
UP = State.RUNNING


def replaced(harness: Bench, unit: Unit, **keys: Any) -> None:
    assert unit.service is not None
    change = harness.committer.change()
    harness.controller.replace(unit, replace(unit.service, **keys), change)
    harness.committer.commit(change)
    harness.store.work_all()


def removed(harness: Bench, unit: Unit) -> None:
    change = harness.committer.change()
    harness.controller.remove(unit, change)
    harness.committer.commit(change)
    harness.store.work_all()


def added(harness: Bench, unit: Unit) -> None:
    change = harness.committer.change()
    harness.controller.add(unit, change)
    harness.committer.commit(change)
    harness.store.work_all()


def test_more_instances(bench: Make) -> None:
    """New instances start, and running ones continue undisturbed."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    replaced(harness, unit, instances=4)
    assert len(harness.root.take("spawn")) == 2
    assert states(unit) == [UP, UP, State.STARTING, State.STARTING]
    assert [row.instance_index for row in stored(harness)] == [0, 1, 2, 3]
    assert harness.root.take("stop") == []


def test_changed_healthy_after(bench: Make) -> None:
    """A changed healthy_after applies at once, counted from the start of each instance."""
    harness = bench(SERVICE.replace('"0s"', '"1h"'))
    unit = taken_up(harness)
    assert not any(instance.healthy for instance in unit.instances)
    replaced(harness, unit, healthy_after_ms=1)

    def healthy() -> bool:
        harness.loop.round(0)
        return all(instance.healthy for instance in unit.instances)

    until(healthy, "the instances to be healthy")


def test_fewer_instances(bench: Make) -> None:
    """Surplus instances stop and are no longer shown, and their ends are stored."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    surplus = unit.instances[1].run
    assert surplus is not None
    replaced(harness, unit, instances=1)
    assert harness.root.take("stop") == [surplus.id]
    assert states(unit) == [UP]
    harness.exited(surplus.id, cause="stop")
    harness.store.work_all()
    assert harness.row(surplus).end_reason == "stopped"
    assert [row.instance_index for row in stored(harness)] == [0]
    assert harness.root.take("spawn") == []


def test_instance_removed_and_added(bench: Make) -> None:
    """An instance that is added again starts after its old process has ended, so no number ever runs twice."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    replaced(harness, unit, instances=1)
    replaced(harness, unit, instances=2)
    assert states(unit) == [UP, State.RESTARTING]
    assert harness.root.take("spawn") == []
    ends(harness, unit.instances[1], cause="stop")
    assert states(unit) == [UP, State.STARTING]
    assert len(harness.root.take("spawn")) == 1


def test_changed_command(bench: Make) -> None:
    """Instances are replaced one after the other; new ones start with the new command and are not replaced."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    replaced(harness, unit, run="false", instances=3)
    assert unit.rolling == RollingRestart(0, 2)
    assert harness.root.take("stop") == [run_of(unit.instances[0])]
    for index in range(2):
        ends(harness, unit.instances[index], cause="stop")
        run_all(harness)
    assert record(harness).rolling is None
    assert {instance.run.definition.run for instance in unit.instances if instance.run} == {"false"}
    assert states(unit) == [UP] * 3


def test_changed_command_of_a_single_instance(bench: Make) -> None:
    """A single instance with a changed command is restarted without its delay."""
    harness = bench(SERVICE.replace("instances = 2", "instances = 1"))
    unit = taken_up(harness)
    replaced(harness, unit, run="false")
    ends(harness, unit.instances[0], cause="stop")
    assert states(unit) == [State.STARTING]


def test_stopped_service_stays_down(bench: Make) -> None:
    """A changed command or more instances start nothing in a stopped service."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    answer_to(harness, "service_stop")
    for instance in unit.instances:
        ends(harness, instance, cause="stop")
    replaced(harness, unit, run="false", instances=3)
    assert states(unit) == [State.STOPPED] * 3
    assert [row.state for row in stored(harness)] == ["stopped"] * 3
    assert harness.root.take("spawn") == []


def test_change_without_a_restart(bench: Make) -> None:
    """Keys that need no restart apply at once: a fatal instance is retried after the new delay."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    fails(harness, unit.instances[0])
    assert states(unit) == [State.FATAL, UP]
    replaced(harness, unit, description="new", priority=7, fatal_retry_ms=1)
    assert harness.root.take("stop") == []
    in_time(harness, State.STARTING, unit.instances[0])


def test_fewer_instances_during_a_rolling_restart(bench: Make) -> None:
    """A rolling restart ends when the next instance no longer exists."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    unit.rolling = RollingRestart(1, 2)
    replaced(harness, unit, instances=1)
    assert record(harness).rolling is None


def test_removed_service(bench: Make) -> None:
    """Instances of a removed service stop for good and are no longer shown, and the ends of their runs are stored."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    before = [instance.run for instance in unit.instances if instance.run]
    removed(harness, unit)
    assert harness.root.take("stop") == [run.id for run in before]
    assert stored(harness) == []
    for run in before:
        harness.exited(run.id, cause="stop")
    harness.store.work_all()
    assert stored(harness) == []
    assert {harness.row(run).end_reason for run in before} == {"stopped"}
    assert harness.root.take("spawn") == []


def test_service_added_again_while_it_stops(bench: Make) -> None:
    """Each new instance waits for the old one of its number, and surplus instances end."""
    harness = bench(SERVICE)
    unit = taken_up(harness)
    before = [instance.run for instance in unit.instances if instance.run]
    removed(harness, unit)
    service = unit.service
    assert service is not None
    again = Unit(replace(service, instances=1))
    added(harness, again)
    assert states(again) == [State.RESTARTING]
    for run in before:
        harness.exited(run.id, cause="stop")
    harness.store.work_all()
    assert states(again) == [State.STARTING]
    assert len(harness.root.take("spawn")) == 1
    assert {harness.row(run).end_reason for run in before} == {"stopped"}


RENAMED = SERVICE + "".join(
    f'[services.{name}]\nrun = "true"\npriority = {priority}\n' for name, priority in (("web", 500), ("db", 10))
)


def renamed(harness: Bench, unit: Unit) -> list[str]:
    """Replace a service by others, and return the ids of its runs."""
    runs = [run_of(instance) for instance in unit.instances]
    change = harness.committer.change()
    harness.controller.remove(unit, change)
    for name in ("web", "db"):
        harness.controller.add(harness.units[name], change)
    harness.committer.commit(change)
    harness.store.work_all()
    assert harness.root.take("spawn") == []
    return runs


def test_renamed_service(bench: Make) -> None:
    """A new service starts when the removed ones have ended, and says for which it waits."""
    harness = bench(RENAMED)
    first, last = renamed(harness, taken_up(harness))
    harness.exited(first, cause="stop")
    harness.store.work_all()
    for name in ("web", "db"):
        assert [(row.state, row.detail) for row in stored(harness, name)] == [
            ("starting", "waits for the removed service s to end")
        ]
    harness.exited(last, cause="stop")
    harness.store.work_all()
    spawned = harness.root.take("spawn")
    assert spawned == [run_of(harness.units[name].instances[0]) for name in ("db", "web")]


def test_removed_service_that_cannot_end(tmp_path: Path) -> None:
    """New services no longer wait for a removed one that is still there long after its SIGKILL."""
    clock = FakeClock()
    harness = Bench(
        tmp_path,
        RENAMED.replace("[services.web]", 'stop_signal = [["TERM", "1m"], ["QUIT", "1m"]]\n[services.web]'),
        clock,
    )
    first, _last = renamed(harness, taken_up(harness))
    web = harness.units["web"]
    clock.advance(121)
    run_all(harness)
    assert states(web) == [State.HELD]
    clock.advance(10)
    run_all(harness)
    assert states(web) == [State.STARTING]
    harness.exited(first, cause="stop")
    harness.close()


def test_waiting_ends_with_the_return_of_the_removed_service(bench: Make) -> None:
    """A service that is added again before it has ended no longer delays others."""
    harness = bench(RENAMED)
    unit = taken_up(harness)
    renamed(harness, unit)
    assert unit.service is not None
    added(harness, Unit(unit.service))
    assert states(harness.units["web"]) == [State.STARTING]


def test_new_service(bench: Make) -> None:
    """A new service starts; with autostart = false it waits for a start command."""
    harness = bench(SERVICE + '[services.later]\nrun = "true"\nautostart = false\n')
    added(harness, harness.units["s"])
    assert states(harness.units["s"]) == [State.STARTING] * 2
    added(harness, harness.units["later"])
    assert states(harness.units["later"]) == [State.STOPPED]
    assert record(harness, "later").stopped
    answer_to(harness, "service_start", "later")
    assert states(harness.units["later"]) == [State.STARTING]


ORDERED = "".join(
    f'[services.{name}]\nrun = "true"\npriority = {priority}\n'
    for name, priority in (("web", 500), ("db", 10), ("queue", 10), ("cache", 100))
)


def names(units: list[Unit]) -> list[str]:
    return [unit.name for unit in units]


def test_start_and_stop_order(bench: Make) -> None:
    """Tasks start first, then services by priority and file order.

    Services stop in the opposite order, level by level.
    """
    harness = bench(ORDERED + '[tasks.t]\nrun = "true"\n')
    assert names(start_order(harness.units.values())) == ["t", "db", "queue", "cache", "web"]
    assert [names(level) for level in stop_levels(harness.units.values())] == [["web"], ["cache"], ["queue", "db"]]


def shut(harness: Bench, timeout_ms: int) -> tuple[Shutdown, dict[str, str]]:
    """Start all services and begin a shutdown."""
    runs = {name: run_of(taken_up(harness, name).instances[0]) for name in ("web", "db", "queue", "cache")}
    root = cast(RootConnection, harness.root)
    shutdown = Shutdown(harness.core, root, harness.engine.live, harness.engine.stop, harness.controller, timeout_ms)
    change = harness.committer.change()
    shutdown.start(harness.units.values(), change)
    harness.committer.commit(change)
    harness.store.work_all()
    return shutdown, runs


def test_reports_during_a_shutdown(tmp_path: Path) -> None:
    """While ends are being stored, the scheduler tells the root every second that it works, unless the store hangs."""
    clock = FakeClock()
    harness = Bench(tmp_path, ORDERED, clock)
    _, runs = shut(harness, 3_600_000)

    def reports(seconds: int) -> int:
        before = len(harness.root.sent)
        for _ in range(seconds):
            clock.advance_ms(1000)
            harness.loop.round(0)
        return harness.root.sent[before:].count({"op": "ack", "runs": []})

    assert reports(3) == 0
    harness.exited(runs["web"], cause="shutdown")
    assert reports(4) == 4
    assert reports(20) < 10
    assert reports(20) == 0
    harness.store.work_all()
    harness.close()


def test_shutdown_order(bench: Make) -> None:
    """Tasks stop at once, and each level of services stops when the level before has ended."""
    harness = bench(ORDERED + '[tasks.t]\nrun = "true"\n')
    task = harness.trigger("t")
    harness.store.work_all()
    harness.root.take("spawn")
    harness.started(task.id)
    shutdown, runs = shut(harness, 3_600_000)
    assert set(harness.root.take("stop")) == {task.id, runs["web"]}
    for ending, following in (("web", {"cache"}), ("cache", {"queue", "db"})):
        shutdown.go_on()
        assert harness.root.take("stop") == []
        harness.exited(runs[ending], cause="shutdown")
        shutdown.go_on()
        harness.store.work_all()
        assert set(harness.root.take("stop")) == {runs[name] for name in following}
    assert harness.units["web"].instances[0].state is State.STOPPED


def test_shutdown_with_a_stuck_service(bench: Make) -> None:
    """A service that does not end delays the next levels by its share of half of shutdown_timeout."""
    harness = bench(ORDERED)
    _, runs = shut(harness, 4)
    stopped = set(harness.root.take("stop"))

    def all_told() -> bool:
        harness.loop.round(0)
        harness.store.work_all()
        stopped.update(harness.root.take("stop"))
        return stopped == set(runs.values())

    until(all_told, "all levels to be told")


def test_unused_stop_time_goes_to_the_next_level(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service is not stopped while a dependent still has time to end."""
    harness = bench(ORDERED)
    waits: list[float] = []
    after = harness.loop.after

    def noted(delay_ms: float, function: Callable[..., None], *arguments: Any) -> Timer:
        if "Shutdown._wait_for" in function.__qualname__:
            waits.append(delay_ms)
        return after(delay_ms, function, *arguments)

    monkeypatch.setattr(harness.loop, "now_s", lambda: 100.0)
    monkeypatch.setattr(harness.loop, "after", noted)
    shutdown, runs = shut(harness, 8000)
    monkeypatch.setattr(harness.loop, "now_s", lambda: 100.5)
    harness.exited(runs["web"], cause="shutdown")
    shutdown.go_on()
    harness.store.work_all()
    assert waits == [2000, 3500]


def test_service_that_exits_during_a_shutdown(bench: Make) -> None:
    """A service that exits during a shutdown is not restarted and does not count as failed."""
    harness = bench(ORDERED)
    _, runs = shut(harness, 3_600_000)
    harness.exited(runs["db"], status=1 << 8)
    harness.store.work_all()
    instance = harness.units["db"].instances[0]
    assert (instance.state, instance.failures, instance.timer) == (State.STOPPED, 0, None)
    assert harness.root.take("spawn") == []


def test_deep_dependencies(bench: Make) -> None:
    """Each service is visited once, however many paths lead to it, even in a long chain."""
    base = '[services.base]\nrun = "true"\nready = { tcp = "127.0.0.1:1" }\n'
    layers = "".join(
        f'[services.{name}{n}]\nrun = "true"\ndepends_on = {[f"a{n - 1}", f"b{n - 1}"] if n else ["base"]}\n'
        for n in range(400)
        for name in "ab"
    )
    harness = bench(base + layers)
    change = harness.committer.change()
    harness.controller.stop(harness.units["base"], change)
    for unit in start_order(list(harness.units.values())):
        harness.controller.take_over(unit, change)
    harness.controller.start(harness.units["a399"], change)
    harness.committer.commit(change)
    harness.store.work_all()
    assert not harness.units["base"].stopped
    assert states(harness.units["b399"]) == [State.HELD]
