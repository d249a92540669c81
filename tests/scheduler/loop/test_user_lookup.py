"""Users, looked up while everything else goes on."""

import threading
from collections.abc import Callable, Iterator

import pytest

from supervisor.host.users import Account
from supervisor.scheduler.loop import user_lookup
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.user_lookup import Identity, UserLookup, look_up
from tests.scheduler.bench import Bench
from tests.support.waiting import until

Make = Callable[[str], Bench]
TASK = '[tasks.t]\nrun = "true"\nuser = "somebody"\n[tasks.other]\nrun = "true"\n'
SOMEBODY = Identity(Account(7, 8, (8,), {"USER": "somebody"}), None, {"USER": "somebody"})


class NameService:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[str | None] = []

    def __call__(self, user: str | None, _clean: bool) -> Identity:
        self.asked.append(user)
        self.go.wait()
        return SOMEBODY


@pytest.fixture
def service() -> Iterator[NameService]:
    one = NameService()
    yield one
    one.go.set()


def prepared(bench: Make, service: NameService, patience_ms: int = 3_600_000) -> Bench:
    one = bench(TASK)
    one.engine.user_lookup = UserLookup(one.loop, patience_ms, service)
    return one


def spawned(one: Bench) -> list[dict[str, object]]:
    return [frame["spawn"] for frame in one.root.sent if frame["op"] == "spawn"]


def turned(one: Bench, condition: Callable[[], object]) -> None:
    """Let the loop turn until this is so."""

    def turn() -> object:
        one.loop.round(0)
        return condition()

    until(turn, "the loop")


def test_only_runs_of_the_user_wait_for_the_lookup(bench: Make, service: NameService) -> None:
    """Runs of other users do not wait; runs of the same user share one lookup."""
    one = prepared(bench, service)
    runs = [one.trigger("t"), one.trigger("other")]
    one.store.work_all()
    assert [spawn["run"] for spawn in spawned(one)] == [runs[1].id]
    one.trigger("t")
    one.store.work_all()
    service.go.set()
    turned(one, lambda: len(spawned(one)) >= 2)
    spawn = spawned(one)[1]
    assert (spawn["run"], spawn["uid"], spawn["gid"]) == (runs[0].id, 7, 8)
    assert isinstance(spawn["env"], dict)
    assert spawn["env"]["USER"] == "somebody"
    assert service.asked == ["somebody"]


def test_a_run_is_stopped_meanwhile(bench: Make, service: NameService) -> None:
    """It ends at once, and is not started when the answer comes."""
    one = prepared(bench, service)
    run = one.trigger("t")
    one.store.work_all()
    one.stop(run)
    one.store.work_all()
    assert one.row(run).end_reason == "stopped"
    service.go.set()
    answered: list[Identity] = []
    one.engine.user_lookup.ask(run.definition, answered.append)
    turned(one, lambda: answered)
    assert spawned(one) == []


def test_a_name_service_that_does_not_answer(bench: Make, service: NameService) -> None:
    """The run ends as not started, with the reason; a late answer does not start it."""
    one = prepared(bench, service, patience_ms=1)
    run = one.trigger("t")
    one.store.work_all()
    turned(one, lambda: spawned(one))
    assert spawned(one)[0]["refusal"] == "the user somebody could not be looked up within 1ms"
    assert one.engine.user_lookup._open == {("somebody", False): []}, "an answered lookup is not kept"
    service.go.set()
    answered: list[Identity] = []
    one.engine.user_lookup.ask(run.definition, answered.append)
    turned(one, lambda: answered)
    assert len(spawned(one)) == 1


@pytest.mark.parametrize("retaken", [False, True])
def test_a_probe_waits_for_its_user(bench: Make, service: NameService, retaken: bool) -> None:
    """It is never made as another one: of a process that a scheduler before has started, that is found out anew."""
    one = bench('[services.s]\nrun = "true"\nuser = "somebody"\nready = { exec = "true", timeout = "1h" }\n')
    one.engine.user_lookup = one.controller._health._user_lookup = UserLookup(one.loop, 3_600_000, service)
    unit = one.units["s"]
    change = one.committer.change()
    one.controller.take_over(unit, change)
    one.committer.commit(change)
    one.store.work_all()
    service.go.set()
    turned(one, lambda: spawned(one))
    run = unit.instances[0].run
    assert run is not None
    if retaken:
        run.identity = None
        service.go.clear()
    one.started(run.id)
    one.store.work_all()
    if retaken:
        assert one.watcher.open == {}
        service.go.set()
    turned(one, lambda: one.watcher.open)
    ((order, _),) = one.watcher.open.values()
    assert (order.uid, order.gid, order.env["USER"]) == (7, 8, "somebody")


def test_names_that_are_looked_up() -> None:
    """None for the daemon's user; another user, who may not exist; and the daemon's own for a clean environment."""
    assert look_up(None, clean_env=False) == Identity()
    assert look_up("no-such-user", clean_env=False).refusal == "no such user: no-such-user"
    assert look_up(None, clean_env=True).variables["HOME"]


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Want of memory is a reason too: else the lookup would never be answered."""

    def resolve(_user: str) -> None:
        raise MemoryError

    monkeypatch.setattr(user_lookup, "resolve", resolve)
    assert look_up("somebody", clean_env=False).refusal == "Cannot allocate memory"


def test_who_needs_nobody_does_not_wait(service: NameService, bench: Make) -> None:
    """The answer comes in the call."""
    answered: list[Identity] = []
    UserLookup(Loop(), 1, service).ask(bench(TASK).units["other"].definition, answered.append)
    assert answered == [Identity()]
    assert service.asked == []
