"""Services that follow the restarts of others (``on_restart``)."""

from collections.abc import Callable

import pytest

from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import answer_to, ends, run_all, run_of
from tests.scheduler.services.test_new_first import next_of, ready

Make = Callable[[str], Bench]


def service(name: str, *depends_on: str, how: str = "restart", more: str = "") -> str:
    entries = ", ".join(f'{{ name = "{other}", on_restart = "{how}" }}' for other in depends_on)
    return (
        f'[services.{name}]\nrun = "true"\nhealthy_after = "0s"\nrestart_delay = "0s"\n'
        f"depends_on = [{entries}]\n{more}\n"
    )


def up(harness: Bench) -> dict[str, Unit]:
    """Start all services, and return them."""
    with harness.committer.changing() as change:
        for unit in harness.units.values():
            harness.controller.take_over(unit, change)
    settle(harness)
    assert all(unit.instances[0].state is State.RUNNING for unit in harness.units.values())
    return harness.units


def settle(harness: Bench) -> list[str]:
    """Let all stops and starts take place; return the names of the services in the order of their stops."""
    stopped = []
    for _ in range(10):
        run_all(harness)
        for run_id in harness.root.take("stop"):
            run = harness.engine.live[run_id]
            stopped.append(run.unit.name)
            harness.exited(run_id, cause="stop")
            harness.store.work_all()
    return stopped


def test_dependents_restart_in_order_and_once(bench: Make) -> None:
    """After a restart, everything that follows restarts once, after all that it follows, also indirectly."""
    harness = bench(service("d", "a", "c") + service("c", "b") + service("b", "a") + service("a") + service("other"))
    units = up(harness)
    before = {name: run_of(unit.instances[0]) for name, unit in units.items()}
    answer_to(harness, "service_restart", "a", command="1", rolling=False)
    assert settle(harness) == ["a", "b", "c", "d"]
    after = {name: run_of(unit.instances[0]) for name, unit in units.items()}
    assert {name for name in units if before[name] == after[name]} == {"other"}
    assert settle(harness) == []


def test_dependents_follow_a_crash(bench: Make) -> None:
    """A dependency that restarts by itself counts as well, once it is ready again."""
    harness = bench(service("a") + service("b", "a"))
    units = up(harness)
    ends(harness, units["a"].instances[0], status=1 << 8)
    assert harness.root.take("stop") == []
    assert settle(harness) == ["b"]
    assert settle(harness) == []


def test_rolling_restart_of_a_dependency(bench: Make) -> None:
    """A rolling restart is one cause, however many instances it restarts."""
    harness = bench(service("a", more="instances = 3") + service("b", "a", more="instances = 2"))
    up(harness)
    answer_to(harness, "service_restart", "a", command="1", rolling=True)
    assert settle(harness) == ["a"] * 3 + ["b"] * 2


@pytest.mark.parametrize("how", ["restart", "stop"])
def test_dependency_that_is_down(bench: Make, how: str) -> None:
    """With "stop", dependents stop while the dependency is down, and start when it is ready; else they go on."""
    harness = bench(service("a") + service("b", "a", how=how))
    units = up(harness)
    (instance,) = units["b"].instances
    answer_to(harness, "service_stop", "a")
    assert sorted(settle(harness)) == (["a", "b"] if how == "stop" else ["a"])
    if how == "stop":
        assert (instance.state, instance.line) == (State.HELD, "waits for a to start: it is stopped")
    else:
        assert instance.state is State.RUNNING
    answer_to(harness, "service_start", "a")
    assert settle(harness) == ([] if how == "stop" else ["b"])
    assert instance.state is State.RUNNING


def test_fatal_dependency(bench: Make) -> None:
    """A dependency that gave up is down as well."""
    harness = bench(service("a", more="restart_attempts = 0") + service("b", "a", how="stop"))
    units = up(harness)
    units["a"].instances[0].healthy = False
    harness.exited(run_of(units["a"].instances[0]), status=1 << 8, ran_ms=-1)
    harness.store.work_all()
    assert units["a"].instances[0].state is State.FATAL
    assert settle(harness) == ["b"]
    assert units["b"].instances[0].state is State.HELD


def test_without_the_key_nothing_follows(bench: Make) -> None:
    """A dependency without on_restart never affects a running service; a stopped dependent stays stopped."""
    harness = bench(
        service("a") + '[services.b]\nrun = "true"\nhealthy_after = "0s"\ndepends_on = ["a"]\n' + service("c", "a")
    )
    units = up(harness)
    answer_to(harness, "service_stop", "c")
    settle(harness)
    answer_to(harness, "service_restart", "a", command="1", rolling=False)
    assert settle(harness) == ["a"]
    assert [units[name].instances[0].state for name in "bc"] == [State.RUNNING, State.STOPPED]


def test_restart_under_way_at_a_takeover(bench: Make) -> None:
    """A new scheduler that takes over while the dependency restarts lets the dependents follow."""
    harness = bench(service("a") + service("b", "a"))
    units = up(harness)
    answer_to(harness, "service_restart", "a", command="1", rolling=False)
    units["b"].followed.clear()
    assert settle(harness) == ["a", "b"]


NEW_FIRST = 'restart_order = "new_first"\nready = { notify = true, timeout = "1h" }'


def test_dependency_that_is_replaced(bench: Make) -> None:
    """With new_first on both sides, the dependent gets its next process once that of the dependency has replaced it."""
    harness = bench(service("a", more=NEW_FIRST) + service("b", "a", more=NEW_FIRST))
    a, b = (harness.units[name].instances[0] for name in "ab")
    with harness.committer.changing() as change:
        for unit in harness.units.values():
            harness.controller.take_over(unit, change)
    for instance in (a, b):
        run_all(harness)
        ready(harness, run_of(instance))
    before = run_of(a), run_of(b)
    answer_to(harness, "service_restart", "a", command="1", rolling=False)
    run_all(harness)
    assert b.next is None
    ready(harness, next_of(a))
    assert harness.root.take("stop") == [before[0]]
    run_all(harness)
    ready(harness, next_of(b))
    assert harness.root.take("stop") == [before[1]]
    assert a.next is b.next is None


def test_dependent_that_must_not_go_on(bench: Make) -> None:
    """A dependent with new_first stops at once if its dependency is down, because it must not be up without it."""
    harness = bench(service("a") + service("b", "a", how="stop", more=NEW_FIRST))
    b = harness.units["b"].instances[0]
    with harness.committer.changing() as change:
        for unit in harness.units.values():
            harness.controller.take_over(unit, change)
    run_all(harness)
    run_all(harness)
    ready(harness, run_of(b))
    answer_to(harness, "service_stop", "a")
    assert sorted(settle(harness)) == ["a", "b"]
    assert (b.state, b.next) == (State.HELD, None)
