"""Readiness and liveness of service instances."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.errors import DiskFull
from store.tasks import set_instance
from supervisor.ipc.probe_request import AttemptFailed, AttemptPassed, RequestFailed
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock
from tests.scheduler.service_bench import DONE, answer_to, ends, in_time, run_all, run_of, states, stored, taken_up

Make = Callable[[str], Bench]
Stepped = Callable[[str], tuple[Bench, Callable[[float], None]]]
SERVICE = '[services.s]\nrun = "true"\nrestart_delay = "1h"\nhealthy_after = "1h"\n'
TCP = SERVICE + 'ready = { tcp = "127.0.0.1:54{instance}", timeout = "1h" }\ninstances = 2\n'
NOTIFY = SERVICE + 'ready = { notify = true, timeout = "1h" }\n'
LIVE = SERVICE + 'live = { tcp = "127.0.0.1:5432", failures = 7 }\n'


def key(unit: Unit, probe_kind: str = "ready", index: int = 0) -> str:
    return f"{run_of(unit.instances[index])}/{probe_kind}"


def test_ready_probe(bench: Make) -> None:
    """Each instance is probed at its own address and is running after a success; failed probes are shown."""
    harness = bench(TCP)
    unit = taken_up(harness)
    assert states(unit) == [State.STARTING] * 2
    assert [request.target for request, _ in harness.watcher.open.values()] == ["127.0.0.1:540", "127.0.0.1:541"]
    harness.watcher.says(AttemptFailed(key(unit), "refused"))
    harness.store.work_all()
    assert [(row.ready, row.detail) for row in stored(harness)] == [(False, "refused"), (False, None)]
    harness.watcher.says(AttemptPassed(key(unit)))
    harness.store.work_all()
    assert states(unit) == [State.RUNNING, State.STARTING]
    assert [(row.ready, row.detail) for row in stored(harness)] == [(True, None), (False, None)]


def test_ready_timeout(bench: Make) -> None:
    """An instance that is not ready in time is stopped with the reason in its log, which counts as a failure."""
    harness = bench(TCP.replace('"1h" }', '"1ms" }').replace("instances = 2", "restart_attempts = 0"))
    unit = taken_up(harness)
    in_time(harness, State.FAILING, unit.instances[0])
    (frame,) = (frame for frame in harness.root.sent if frame["op"] == "stop")
    assert (frame["cause"], frame["note"]) == ("unfit", "not ready within 1ms: no connection: stopping")
    assert stored(harness)[0].state == "stopping"
    ends(harness, unit.instances[0], cause="unfit")
    assert states(unit) == [State.FATAL]
    assert harness.watcher.open == {}


@pytest.mark.parametrize("command", ["stop", "start"])
def test_commands_during_a_health_stop(bench: Make, command: str) -> None:
    """A command during a health stop is carried out afterwards, and the exit is then not a failure."""
    harness = bench(TCP.replace('"1h" }', '"1ms" }').replace("instances = 2", "restart_attempts = 0"))
    unit = taken_up(harness)
    in_time(harness, State.FAILING, unit.instances[0])
    change = harness.committer.change()
    getattr(harness.controller, command)(unit, change)
    harness.committer.commit(change)
    ends(harness, unit.instances[0], cause="unfit")
    assert states(unit) == [State.STOPPED if command == "stop" else State.STARTING]
    assert unit.instances[0].failures == 0


def test_notify_messages(bench: Make) -> None:
    """READY=1 counts only for services with notify = true; a status text is shown for all."""
    for text, after in ((NOTIFY, State.RUNNING), (TCP.replace("instances = 2", ""), State.STARTING)):
        harness = bench(text)
        unit = taken_up(harness)
        run = unit.instances[0].run
        assert run is not None
        harness.controller.run_notified(run, {"ready_at": 1, "status": "warm"})
        harness.store.work_all()
        assert states(unit) == [after]
        assert stored(harness)[0].detail == "warm"


def test_status_while_the_store_is_stuck(bench: Make) -> None:
    """While nothing can be stored, only the last status of a run is kept."""
    harness = bench(NOTIFY)
    harness.commits.stored = harness.controller.go_on
    run = taken_up(harness).instances[0].run
    assert run is not None
    waits = harness.committer.change()
    waits.write(lambda _db: None)
    harness.committer.commit(waits)
    harness.store.fail(DiskFull())
    for number in range(100):
        harness.controller.run_reports(run, f"step {number}")
    harness.committer._feed()
    assert len(harness.store.jobs) == 1
    harness.store.work()
    assert stored(harness)[0].detail is None
    harness.store.work()
    assert (stored(harness)[0].detail, harness.store.jobs) == ("step 99", [])


def test_health_counts_from_readiness(bench: Make) -> None:
    """An instance that took long to become ready and exited soon after has failed quickly."""
    harness = bench(NOTIFY)
    unit = taken_up(harness)
    (instance,) = unit.instances
    assert instance.run is not None
    instance.started_at = harness.loop.now_ms() - 7_200_000
    harness.controller.run_notified(instance.run, {"ready_at": 1})
    harness.exited(run_of(instance), status=1 << 8, ran_ms=7_200_000)
    assert instance.failures == 1


@pytest.mark.parametrize(("state", "failures"), [("running", 0), ("starting", 1)])
def test_health_without_a_scheduler(bench: Make, state: str, failures: int) -> None:
    """The next scheduler knows from the stored state whether an instance that ended meanwhile had been healthy."""
    harness = bench(NOTIFY)
    unit = taken_up(harness)
    run_id = run_of(unit.instances[0])
    now = harness.loop.now_ms()
    set_instance(harness.store.database, stored(harness)[0]._replace(state=state, since=now - 7_200_000, failures=0))
    harness.take_up(first=False)
    unit = harness.units["s"]
    unit.instances[0].started_at = now - 7_300_000
    from supervisor.ipc.messages import Exited, Message
    from supervisor.scheduler.startup_shutdown.known_runs import read
    from supervisor.scheduler.startup_shutdown.take_over import TakeOver

    exited = Exited(run=run_id, status=256, started_at=now - 7_300_000, ended_at=now)
    snapshot: Message = {"instances": [], "exits": [vars(exited)], "ending": False, "cgroups": None}
    change = harness.committer.change()
    TakeOver(harness.core, harness.engine, harness.controller, harness.root, harness.units).reconcile(  # type: ignore[arg-type]
        read(harness.store.database, snapshot), change
    )
    harness.committer.commit(change)
    harness.store.work_all()
    assert unit.instances[0].state is State.BACKOFF
    assert unit.instances[0].failures == failures


def test_failed_liveness_probe(bench: Make) -> None:
    """An instance that fails its liveness probe is stopped with the reason and restarts after its delay."""
    harness = bench(LIVE)
    unit = taken_up(harness)
    assert harness.watcher.open[key(unit, "live")][0].times == 7
    harness.watcher.says(AttemptFailed(key(unit, "live"), "refused"))
    harness.watcher.says(RequestFailed(key(unit, "live"), "refused (7 times in a row)"))
    harness.store.work_all()
    assert states(unit) == [State.FAILING]
    (frame,) = (frame for frame in harness.root.sent if frame["op"] == "stop")
    assert frame["note"] == "not alive: refused (7 times in a row): stopping"
    ends(harness, unit.instances[0], cause="unfit")
    assert states(unit) == [State.BACKOFF]


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[Stepped]:
    """Return a function that makes a bench on a clock which stands still, and a function that advances the clock."""
    made: list[Bench] = []

    def make(keys: str) -> tuple[Bench, Callable[[float], None]]:
        clock = FakeClock()
        harness = Bench(tmp_path, SERVICE + keys, clock)
        made.append(harness)

        def advance(seconds: float) -> None:
            clock.advance(seconds)
            run_all(harness)

        return harness, advance

    yield make
    for harness in made:
        harness.close()


def notified(harness: Bench, unit: Unit, **news: object) -> None:
    run = unit.instances[0].run
    assert run is not None
    harness.controller.run_notified(run, news)
    run_all(harness)


def test_watchdog(stepped: Stepped) -> None:
    """An instance that feeds its watchdog stays up; an instance that misses the interval is stopped."""
    harness, advance = stepped('live = { notify = true, every = "50ms", failures = 4 }')
    unit = taken_up(harness)
    for _ in range(3):
        advance(0.19)
        assert states(unit) == [State.RUNNING]
        notified(harness, unit, alive=True)
    advance(0.21)
    assert states(unit) == [State.FAILING]
    assert stored(harness)[0].detail == "not alive: no WATCHDOG=1 for 200ms"


@pytest.mark.parametrize("probe", ["notify = true", 'tcp = "127.0.0.1:5432"'])
@pytest.mark.parametrize(("status", "after"), [(0, State.EXITED), (1 << 8, State.BACKOFF)])
def test_stopping_ends_liveness_checks(stepped: Stepped, probe: str, status: int, after: State) -> None:
    """An instance that reports STOPPING=1 is not checked any more, and its own exit counts."""
    keys = f'live = {{ {probe}, every = "1s", failures = 1 }}\nready = {{ notify = true }}\ngraceful_stop = "60s"\n'
    harness, advance = stepped(keys + 'restart = "on_failure"')
    unit = taken_up(harness)
    notified(harness, unit, ready_at=1)
    notified(harness, unit, stopping_at=harness.loop.now_ms(), status="stopping")
    notified(harness, unit, alive=True)
    advance(59)
    assert (states(unit), unit.instances[0].line) == ([State.RUNNING], "stopping")
    assert not harness.watcher.open
    harness.exited(run_of(unit.instances[0]), status=status, ran_ms=60_000)
    assert states(unit) == [after]
    advance(3)
    assert not harness.root.take("stop")


def test_stop_that_hangs(stepped: Stepped) -> None:
    """An instance that runs for longer than graceful_stop after STOPPING=1 is stopped, which counts as a failure."""
    harness, advance = stepped('live = { notify = true }\ngraceful_stop = "60s"')
    unit = taken_up(harness)
    notified(harness, unit, stopping_at=harness.loop.now_ms() - 20_000)  # so long ago that a takeover came between
    advance(39)
    assert states(unit) == [State.RUNNING]
    advance(2)
    assert states(unit) == [State.FAILING]
    (message,) = (message for message in harness.root.sent if message["op"] == "stop")
    assert (message["cause"], message["note"]) == ("unfit", "still running 1m after STOPPING=1: stopping")


def test_stopping_before_readiness(stepped: Stepped) -> None:
    """An instance that stops by itself before it is ready has graceful_stop, whatever the limit for readiness is."""
    harness, advance = stepped('ready = { notify = true, timeout = "1s" }\ngraceful_stop = "60s"')
    unit = taken_up(harness)
    notified(harness, unit, stopping_at=harness.loop.now_ms())
    notified(harness, unit, ready_at=harness.loop.now_ms())
    advance(59)
    assert states(unit) == [State.STARTING]
    advance(2)
    assert states(unit) == [State.FAILING]


@pytest.mark.parametrize("ready", [False, True])
def test_triggered_watchdog(stepped: Stepped, ready: bool) -> None:
    """An instance that sends WATCHDOG=trigger is stopped at once, even without liveness checks."""
    harness, _ = stepped("ready = { notify = true }")
    unit = taken_up(harness)
    notified(harness, unit, **({"ready_at": 1} if ready else {}), triggered=True)
    assert states(unit) == [State.FAILING]
    assert stored(harness)[0].detail == "not alive: WATCHDOG=trigger"


def test_health_while_being_stopped(stepped: Stepped) -> None:
    """An instance that a user stops need not report that it is alive."""
    harness, advance = stepped('live = { notify = true, every = "1s", failures = 1 }\ngraceful_stop = "60s"')
    unit = taken_up(harness)
    assert answer_to(harness, "service_stop") == DONE
    notified(harness, unit, stopping_at=harness.loop.now_ms(), status="3 requests left")
    notified(harness, unit, triggered=True)
    advance(61)
    assert (states(unit), unit.instances[0].line) == ([State.STOPPING], "3 requests left")
