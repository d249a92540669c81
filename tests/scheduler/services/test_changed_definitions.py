"""Services whose definition changes while they live, and the order in which services start and stop."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor.scheduler.loop.loop import Timer
from supervisor.scheduler.runs.live_units import Roll, Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.start_order import start_order, stop_levels
from supervisor.scheduler.startup_shutdown.shutdown import Shutdown
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import asked, ends, fails, in_time, record, run_all, run_of, states, stored, taken_up
from tests.support.waiting import until

Make = Callable[[str], Bench]
SERVICE = (
    '[services.s]\nrun = "true"\ninstances = 2\nhealthy_after = "0s"\nrestart_delay = "1h"\nrestart_attempts = 0\n'
)
UP = State.RUNNING


def replaced(one: Bench, unit: Unit, **keys: Any) -> None:
    assert unit.service is not None
    change = one.committer.change()
    one.controller.replace(unit, replace(unit.service, **keys), change)
    one.committer.commit(change)
    one.store.work_all()


def removed(one: Bench, unit: Unit) -> None:
    change = one.committer.change()
    one.controller.remove(unit, change)
    one.committer.commit(change)
    one.store.work_all()


def added(one: Bench, unit: Unit) -> None:
    change = one.committer.change()
    one.controller.add(unit, change)
    one.committer.commit(change)
    one.store.work_all()


def test_more_instances(bench: Make) -> None:
    """New instances start; running ones are left alone."""
    one = bench(SERVICE)
    unit = taken_up(one)
    replaced(one, unit, instances=4)
    assert len(one.root.take("spawn")) == 2
    assert states(unit) == [UP, UP, State.STARTING, State.STARTING]
    assert [row.instance_index for row in stored(one)] == [0, 1, 2, 3]
    assert one.root.take("stop") == []


def test_another_time_until_they_are_healthy(bench: Make) -> None:
    """It holds at once, counted from when each came up."""
    one = bench(SERVICE.replace('"0s"', '"1h"'))
    unit = taken_up(one)
    replaced(one, unit, healthy_after_ms=1)

    def healthy() -> bool:
        one.loop.round(0)
        return all(instance.healthy for instance in unit.instances)

    until(healthy, "the instances to be healthy")


def test_fewer_instances(bench: Make) -> None:
    """The surplus ones stop and are not shown any more; their ends are stored."""
    one = bench(SERVICE)
    unit = taken_up(one)
    surplus = unit.instances[1].run
    assert surplus is not None
    replaced(one, unit, instances=1)
    assert one.root.take("stop") == [surplus.id]
    assert states(unit) == [UP]
    one.exited(surplus.id, cause="stop")
    one.store.work_all()
    assert one.row(surplus).end_reason == "stopped"
    assert [row.instance_index for row in stored(one)] == [0]
    assert one.root.take("spawn") == []


def test_fewer_and_more_again(bench: Make) -> None:
    """One that still ends is followed in its place, so no two of a number ever run."""
    one = bench(SERVICE)
    unit = taken_up(one)
    replaced(one, unit, instances=1)
    replaced(one, unit, instances=2)
    assert states(unit) == [UP, State.RESTARTING]
    assert one.root.take("spawn") == []
    ends(one, unit.instances[1], cause="stop")
    assert states(unit) == [UP, State.STARTING]
    assert len(one.root.take("spawn")) == 1


def test_another_command(bench: Make) -> None:
    """Several instances are replaced one after the other; new ones start with it at once, and are not replaced."""
    one = bench(SERVICE)
    unit = taken_up(one)
    replaced(one, unit, run="false", instances=3)
    assert unit.rolling == Roll(0, 2)
    assert one.root.take("stop") == [run_of(unit.instances[0])]
    for index in range(2):
        ends(one, unit.instances[index], cause="stop")
        run_all(one)
    assert record(one).rolling is None
    assert {one.run.definition.run for one in unit.instances if one.run} == {"false"}
    assert states(unit) == [UP] * 3


def test_another_command_of_a_single_instance(bench: Make) -> None:
    """It is restarted without its delay."""
    one = bench(SERVICE.replace("instances = 2", "instances = 1"))
    unit = taken_up(one)
    replaced(one, unit, run="false")
    ends(one, unit.instances[0], cause="stop")
    assert states(unit) == [State.STARTING]


def test_a_stopped_service_stays_so(bench: Make) -> None:
    """Neither another command nor more instances start anything."""
    one = bench(SERVICE)
    unit = taken_up(one)
    asked(one, "service_stop")
    for instance in unit.instances:
        ends(one, instance, cause="stop")
    replaced(one, unit, run="false", instances=3)
    assert states(unit) == [State.STOPPED] * 3
    assert [row.state for row in stored(one)] == ["stopped"] * 3
    assert one.root.take("spawn") == []


def test_a_change_that_needs_no_restart(bench: Make) -> None:
    """It holds at once, without a restart: an instance that had failed for good is retried after the new delay."""
    one = bench(SERVICE)
    unit = taken_up(one)
    fails(one, unit.instances[0])
    assert states(unit) == [State.FATAL, UP]
    replaced(one, unit, description="new", priority=7, fatal_retry_ms=1)
    assert one.root.take("stop") == []
    in_time(one, State.STARTING, unit.instances[0])


def test_fewer_instances_during_a_rolling_restart(bench: Make) -> None:
    """The restart ends when the next instance in turn no longer exists."""
    one = bench(SERVICE)
    unit = taken_up(one)
    unit.rolling = Roll(1, 2)
    replaced(one, unit, instances=1)
    assert record(one).rolling is None


def test_a_service_that_is_removed(bench: Make) -> None:
    """Its instances stop and do not come back; nothing of them is shown, and the ends of their runs are stored."""
    one = bench(SERVICE)
    unit = taken_up(one)
    before = [instance.run for instance in unit.instances if instance.run]
    removed(one, unit)
    assert one.root.take("stop") == [run.id for run in before]
    assert stored(one) == []
    for run in before:
        one.exited(run.id, cause="stop")
    one.store.work_all()
    assert stored(one) == []
    assert {one.row(run).end_reason for run in before} == {"stopped"}
    assert one.root.take("spawn") == []


def test_a_service_that_comes_back_while_it_ends(bench: Make) -> None:
    """Each new instance waits for the old one of its number; surplus instances just end."""
    one = bench(SERVICE)
    unit = taken_up(one)
    before = [instance.run for instance in unit.instances if instance.run]
    removed(one, unit)
    service = unit.service
    assert service is not None
    again = Unit(replace(service, instances=1))
    added(one, again)
    assert states(again) == [State.RESTARTING]
    for run in before:
        one.exited(run.id, cause="stop")
    one.store.work_all()
    assert states(again) == [State.STARTING]
    assert len(one.root.take("spawn")) == 1
    assert {one.row(run).end_reason for run in before} == {"stopped"}


def test_a_new_service(bench: Make) -> None:
    """It starts, unless autostart = false: then it waits for people, as it does at the daemon's start."""
    one = bench(SERVICE + '[services.later]\nrun = "true"\nautostart = false\n')
    added(one, one.units["s"])
    assert states(one.units["s"]) == [State.STARTING] * 2
    added(one, one.units["later"])
    assert states(one.units["later"]) == [State.STOPPED]
    assert record(one, "later").stopped
    asked(one, "service_start", "later")
    assert states(one.units["later"]) == [State.STARTING]


ORDERED = "".join(
    f'[services.{name}]\nrun = "true"\npriority = {priority}\n'
    for name, priority in (("web", 500), ("db", 10), ("queue", 10), ("cache", 100))
)


def names(units: list[Unit]) -> list[str]:
    return [unit.name for unit in units]


def test_the_order_of_starts_and_stops(bench: Make) -> None:
    """Lower priorities first, then as configured, tasks before all; stops go the other way, level by level."""
    one = bench(ORDERED + '[tasks.t]\nrun = "true"\n')
    assert names(start_order(one.units.values())) == ["t", "db", "queue", "cache", "web"]
    assert [names(level) for level in stop_levels(one.units.values())] == [["web"], ["cache"], ["queue", "db"]]


def shut(one: Bench, timeout_ms: int) -> tuple[Shutdown, dict[str, str]]:
    """Everything runs, then a shutdown begins."""
    runs = {name: run_of(taken_up(one, name).instances[0]) for name in ("web", "db", "queue", "cache")}
    shutdown = Shutdown(one.loop, one.engine, one.controller, timeout_ms)
    change = one.committer.change()
    shutdown.start(one.units.values(), change)
    one.committer.commit(change)
    one.store.work_all()
    return shutdown, runs


def test_a_shutdown_in_order(bench: Make) -> None:
    """A level is stopped when all of the one before have ended; tasks at once."""
    one = bench(ORDERED + '[tasks.t]\nrun = "true"\n')
    task = one.trigger("t")
    one.store.work_all()
    one.root.take("spawn")
    one.started(task.id)
    shutdown, runs = shut(one, 3_600_000)
    assert set(one.root.take("stop")) == {task.id, runs["web"]}
    for ending, following in (("web", {"cache"}), ("cache", {"queue", "db"})):
        shutdown.go_on()
        assert one.root.take("stop") == []
        one.exited(runs[ending], cause="shutdown")
        shutdown.go_on()
        one.store.work_all()
        assert set(one.root.take("stop")) == {runs[name] for name in following}
    assert one.units["web"].instances[0].state is State.STOPPED


def test_a_shutdown_does_not_wait_for_ever(bench: Make) -> None:
    """A service that does not end holds up those before it for its share of half of shutdown_timeout."""
    one = bench(ORDERED)
    _, runs = shut(one, 4)
    stopped = set(one.root.take("stop"))

    def all_told() -> bool:
        one.loop.round(0)
        one.store.work_all()
        stopped.update(one.root.take("stop"))
        return stopped == set(runs.values())

    until(all_told, "all levels to be told")


def test_unused_stop_time_goes_to_the_next_level(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service is not stopped while a dependent still has time to end."""
    one = bench(ORDERED)
    waits: list[float] = []
    after = one.loop.after

    def noted(delay_ms: float, function: Callable[[], None]) -> Timer:
        if "Shutdown" in function.__qualname__:
            waits.append(delay_ms)
        return after(delay_ms, function)

    monkeypatch.setattr(one.loop, "now_s", lambda: 100.0)
    monkeypatch.setattr(one.loop, "after", noted)
    shutdown, runs = shut(one, 8000)
    monkeypatch.setattr(one.loop, "now_s", lambda: 100.5)
    one.exited(runs["web"], cause="shutdown")
    shutdown.go_on()
    one.store.work_all()
    assert waits == [2000, 3500]


def test_one_that_ends_by_itself_during_a_shutdown(bench: Make) -> None:
    """A service that ends by itself during a shutdown is not restarted, and does not count as failed."""
    one = bench(ORDERED)
    _, runs = shut(one, 3_600_000)
    one.exited(runs["db"], status=1 << 8)
    one.store.work_all()
    instance = one.units["db"].instances[0]
    assert (instance.state, instance.failures, instance.timer) == (State.STOPPED, 0, None)
    assert one.root.take("spawn") == []


def test_what_many_layers_need(bench: Make) -> None:
    """Each service is visited once, however many paths lead to it, also in a long chain."""
    base = '[services.base]\nrun = "true"\nready = { tcp = "127.0.0.1:1" }\n'
    layers = "".join(
        f'[services.{name}{n}]\nrun = "true"\ndepends_on = {[f"a{n - 1}", f"b{n - 1}"] if n else ["base"]}\n'
        for n in range(400)
        for name in "ab"
    )
    one = bench(base + layers)
    change = one.committer.change()
    one.controller.stop(one.units["base"], change)
    for unit in start_order(list(one.units.values())):
        one.controller.take_over(unit, change)
    one.controller.start(one.units["a399"], change)
    one.committer.commit(change)
    one.store.work_all()
    assert not one.units["base"].stopped
    assert states(one.units["b399"]) == [State.HELD]
