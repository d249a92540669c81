"""Readiness and liveness of service instances."""

from collections.abc import Callable
from pathlib import Path

import pytest

from store.errors import DiskFull
from store.tasks import set_instance
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock
from tests.scheduler.service_bench import ends, in_time, run_all, run_of, states, stored, taken_up

Make = Callable[[str], Bench]
SERVICE = '[services.s]\nrun = "true"\nrestart_delay = "1h"\nhealthy_after = "1h"\n'
TCP = SERVICE + 'ready = { tcp = "127.0.0.1:54{instance}", timeout = "1h" }\ninstances = 2\n'
NOTIFY = SERVICE + 'ready = { notify = true, timeout = "1h" }\n'
LIVE = SERVICE + 'live = { tcp = "127.0.0.1:5432", failures = 7 }\n'


def key(unit: Unit, what: str = "ready", index: int = 0) -> str:
    return f"{run_of(unit.instances[index])}/{what}"


def test_ready_probe(bench: Make) -> None:
    """Each instance is probed at its own address and is running after a success; failed probes are shown."""
    one = bench(TCP)
    unit = taken_up(one)
    assert states(unit) == [State.STARTING] * 2
    assert [request.target for request, _ in one.watcher.open.values()] == ["127.0.0.1:540", "127.0.0.1:541"]
    one.watcher.says(key(unit), "failing", "refused")
    one.store.work_all()
    assert [(row.ready, row.detail) for row in stored(one)] == [(False, "refused"), (False, None)]
    one.watcher.says(key(unit), "passed")
    one.store.work_all()
    assert states(unit) == [State.RUNNING, State.STARTING]
    assert [(row.ready, row.detail) for row in stored(one)] == [(True, None), (False, None)]


def test_ready_timeout(bench: Make) -> None:
    """An instance that is not ready in time is stopped with the reason in its log, which counts as a failure."""
    one = bench(TCP.replace('"1h" }', '"1ms" }').replace("instances = 2", "restart_attempts = 0"))
    unit = taken_up(one)
    in_time(one, State.FAILING, unit.instances[0])
    (frame,) = (frame for frame in one.root.sent if frame["op"] == "stop")
    assert (frame["cause"], frame["note"]) == ("unfit", "not ready within 1ms: no connection: stopping")
    assert stored(one)[0].state == "stopping"
    ends(one, unit.instances[0], cause="unfit")
    assert states(unit) == [State.FATAL]
    assert one.watcher.open == {}


@pytest.mark.parametrize("asked", ["stop", "start"])
def test_commands_during_a_health_stop(bench: Make, asked: str) -> None:
    """A command during a health stop is carried out afterwards, and the exit is then not a failure."""
    one = bench(TCP.replace('"1h" }', '"1ms" }').replace("instances = 2", "restart_attempts = 0"))
    unit = taken_up(one)
    in_time(one, State.FAILING, unit.instances[0])
    change = one.committer.change()
    getattr(one.controller, asked)(unit, change)
    one.committer.commit(change)
    ends(one, unit.instances[0], cause="unfit")
    assert states(unit) == [State.STOPPED if asked == "stop" else State.STARTING]
    assert unit.instances[0].failures == 0


def test_notify_messages(bench: Make) -> None:
    """READY=1 counts only for services with notify = true; a status text is shown for all."""
    for text, after in ((NOTIFY, State.RUNNING), (TCP.replace("instances = 2", ""), State.STARTING)):
        one = bench(text)
        unit = taken_up(one)
        run = unit.instances[0].run
        assert run is not None
        one.controller.run_notified(run, {"ready_at": 1, "status": "warm"})
        one.store.work_all()
        assert states(unit) == [after]
        assert stored(one)[0].detail == "warm"


def test_status_while_the_store_is_stuck(bench: Make) -> None:
    """While nothing can be stored, only the last status of a run is kept."""
    one = bench(NOTIFY)
    one.commits.stored = one.controller.go_on
    run = taken_up(one).instances[0].run
    assert run is not None
    waits = one.committer.change()
    waits.write(lambda _db: None)
    one.committer.commit(waits)
    one.store.fail(DiskFull())
    for number in range(100):
        one.controller.run_reports(run, f"step {number}")
    one.committer._feed()
    assert len(one.store.jobs) == 1
    one.store.work()
    assert stored(one)[0].detail is None
    one.store.work()
    assert (stored(one)[0].detail, one.store.jobs) == ("step 99", [])


def test_health_counts_from_readiness(bench: Make) -> None:
    """An instance that took long to become ready and exited soon after has failed quickly."""
    one = bench(NOTIFY)
    unit = taken_up(one)
    (instance,) = unit.instances
    assert instance.run is not None
    instance.started_at = one.loop.now_ms() - 7_200_000
    one.controller.run_notified(instance.run, {"ready_at": 1})
    one.exited(run_of(instance), status=1 << 8, ran_ms=7_200_000)
    assert instance.failures == 1


@pytest.mark.parametrize(("state", "failures"), [("running", 0), ("starting", 1)])
def test_health_without_a_scheduler(bench: Make, state: str, failures: int) -> None:
    """The next scheduler knows from the stored state whether an instance that ended meanwhile had been healthy."""
    one = bench(NOTIFY)
    unit = taken_up(one)
    run_id = run_of(unit.instances[0])
    now = one.loop.now_ms()
    set_instance(one.store.database, stored(one)[0]._replace(state=state, since=now - 7_200_000, failures=0))
    one.take_up(first=False)
    unit = one.units["s"]
    unit.instances[0].started_at = now - 7_300_000
    from supervisor.ipc.messages import Exited, Message
    from supervisor.scheduler.startup_shutdown.known_runs import read
    from supervisor.scheduler.startup_shutdown.take_over import TakeOver

    exited = Exited(run=run_id, status=256, started_at=now - 7_300_000, ended_at=now)
    snapshot: Message = {"instances": [], "exits": [vars(exited)], "ending": False, "cgroups": None}
    change = one.committer.change()
    TakeOver(one.core, one.engine, one.controller, one.root, one.units).reconcile(  # type: ignore[arg-type]
        read(one.store.database, snapshot), change
    )
    one.committer.commit(change)
    one.store.work_all()
    assert unit.instances[0].state is State.BACKOFF
    assert unit.instances[0].failures == failures


def test_failed_liveness_probe(bench: Make) -> None:
    """An instance that fails its liveness probe is stopped with the reason and restarts after its delay."""
    one = bench(LIVE)
    unit = taken_up(one)
    assert one.watcher.open[key(unit, "live")][0].times == 7
    one.watcher.says(key(unit, "live"), "failing", "refused")
    one.watcher.says(key(unit, "live"), "failed", "refused (7 times in a row)")
    one.store.work_all()
    assert states(unit) == [State.FAILING]
    (frame,) = (frame for frame in one.root.sent if frame["op"] == "stop")
    assert frame["note"] == "not alive: refused (7 times in a row): stopping"
    ends(one, unit.instances[0], cause="unfit")
    assert states(unit) == [State.BACKOFF]


def test_watchdog(tmp_path: Path) -> None:
    """An instance that feeds its watchdog stays up; an instance that misses the interval is stopped."""
    clock = FakeClock()
    one = Bench(tmp_path, SERVICE + 'live = { notify = true, every = "50ms", failures = 4 }\n', clock)
    unit = taken_up(one)
    run = unit.instances[0].run
    assert run is not None
    for _ in range(3):
        clock.advance(0.19)
        run_all(one)
        assert states(unit) == [State.RUNNING]
        one.controller.run_notified(run, {"alive": True})
    clock.advance(0.21)
    run_all(one)
    assert states(unit) == [State.FAILING]
    assert stored(one)[0].detail == "not alive: no WATCHDOG=1 for 200ms"
    one.close()
