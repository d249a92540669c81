"""Lookups of users that do not block the loop."""

import threading
from collections.abc import Callable, Iterator

import pytest

from supervisor.host.unix_accounts import UnixAccount
from supervisor.scheduler.loop import user_lookup
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.user_lookup import UserIdentity, UserLookup, look_up
from tests.scheduler.bench import Bench
from tests.support.threads import no_memory_for_threads
from tests.support.waiting import until

Make = Callable[[str], Bench]
TASK = '[tasks.t]\nrun = "true"\nuser = "anna"\n[tasks.other]\nrun = "true"\n'
ANNA = UserIdentity(UnixAccount(7, 8, (8,), {"USER": "anna"}), None, {"USER": "anna"})


class NameService:
    """A name service that answers on the test's command."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.lookups: list[str | None] = []

    def __call__(self, user: str | None, _clean: bool) -> UserIdentity:
        self.lookups.append(user)
        self.go.wait()
        return ANNA


@pytest.fixture
def service() -> Iterator[NameService]:
    name_service = NameService()
    yield name_service
    name_service.go.set()


def prepared(bench: Make, service: NameService, patience_ms: int = 3_600_000) -> Bench:
    harness = bench(TASK)
    harness.make_user_lookup = lambda loop: UserLookup(loop, patience_ms, service)
    harness.take_up(first=True)
    return harness


def spawned(harness: Bench) -> list[dict[str, object]]:
    return [harness.root.request(frame) for frame in harness.root.sent if frame["op"] == "spawn"]


def turned(harness: Bench, condition: Callable[[], object]) -> None:
    """Run the loop until the condition holds."""

    def turn() -> object:
        harness.loop.round(0)
        return condition()

    until(turn, "the loop")


def test_only_runs_of_the_user_wait_for_the_lookup(bench: Make, service: NameService) -> None:
    """Runs of other users do not wait; runs of the same user share one lookup."""
    lookups = prepared(bench, service)
    runs = [lookups.trigger("t"), lookups.trigger("other")]
    lookups.store.work_all()
    assert [spawn["run"] for spawn in spawned(lookups)] == [runs[1].id]
    lookups.trigger("t")
    lookups.store.work_all()
    service.go.set()
    turned(lookups, lambda: len(spawned(lookups)) >= 2)
    spawn = spawned(lookups)[1]
    assert (spawn["run"], spawn["uid"], spawn["gid"]) == (runs[0].id, 7, 8)
    assert isinstance(spawn["env"], dict)
    assert spawn["env"]["USER"] == "anna"
    assert service.lookups == ["anna"]


def test_stop_during_the_lookup(bench: Make, service: NameService) -> None:
    """A run that is stopped during the lookup ends at once and is not started by the answer."""
    lookups = prepared(bench, service)
    run = lookups.trigger("t")
    lookups.store.work_all()
    lookups.stop(run)
    lookups.store.work_all()
    assert lookups.row(run).end_reason == "stopped"
    service.go.set()
    answered: list[UserIdentity] = []
    lookups.user_lookup.ask(run.definition, answered.append)
    turned(lookups, lambda: answered)
    assert spawned(lookups) == []


def test_unresponsive_name_service(bench: Make, service: NameService) -> None:
    """A run whose lookup times out ends as not started with the reason, and a late answer is ignored."""
    lookups = prepared(bench, service, patience_ms=1)
    run = lookups.trigger("t")
    lookups.store.work_all()
    turned(lookups, lambda: spawned(lookups))
    assert spawned(lookups)[0]["refusal"] == "the user anna could not be looked up within 1ms"
    (lookup,) = lookups.user_lookup._open.values()
    assert lookup.callers == [], "an answered lookup is not kept"
    service.go.set()
    answered: list[UserIdentity] = []
    lookups.user_lookup.ask(run.definition, answered.append)
    turned(lookups, lambda: answered)
    assert len(spawned(lookups)) == 1


@pytest.mark.parametrize("retaken", [False, True])
def test_probe_waits_for_its_user(bench: Make, service: NameService, retaken: bool) -> None:
    """A probe never runs as another user: a new scheduler looks the user up again before it probes."""
    harness = bench('[services.s]\nrun = "true"\nuser = "anna"\nready = { exec = "true", timeout = "1h" }\n')
    harness.make_user_lookup = lambda loop: UserLookup(loop, 3_600_000, service)
    harness.take_up(first=True)
    unit = harness.units["s"]
    change = harness.committer.change()
    harness.controller.take_over(unit, change)
    harness.committer.commit(change)
    harness.store.work_all()
    service.go.set()
    turned(harness, lambda: spawned(harness))
    run = unit.instances[0].run
    assert run is not None
    if retaken:
        run.identity = None
        service.go.clear()
    harness.started(run.id)
    harness.store.work_all()
    if retaken:
        assert harness.watcher.open == {}
        service.go.set()
    turned(harness, lambda: harness.watcher.open)
    ((order, _),) = harness.watcher.open.values()
    assert (order.uid, order.gid, order.env["USER"]) == (7, 8, "anna")


def test_lookup_results() -> None:
    """None means the daemon's user, an unknown user is refused, and a clean environment has the user's variables."""
    assert look_up(None, clean_env=False) == UserIdentity()
    assert look_up("no-such-user", clean_env=False).refusal == "no such user: no-such-user"
    assert look_up(None, clean_env=True).variables["HOME"]


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup without memory is answered with that reason instead of never."""

    def resolve(_user: str) -> None:
        raise MemoryError

    monkeypatch.setattr(user_lookup, "resolve", resolve)
    assert look_up("anna", clean_env=False).refusal == "Cannot allocate memory"


def test_thread_without_memory(bench: Make, service: NameService) -> None:
    """A lookup whose thread had no memory to begin does not keep later ones from being answered."""
    lookups = prepared(bench, service)
    service.go.set()
    definition = lookups.config.tasks["t"]
    answered: list[UserIdentity] = []
    with no_memory_for_threads():
        lookups.user_lookup.ask(definition, answered.append)
    lookups.user_lookup.ask(definition, answered.append)
    turned(lookups, lambda: len(answered) == 2)


def test_no_user_needs_no_lookup(service: NameService, bench: Make) -> None:
    """A run without a user is answered in the call, without the name service."""
    answered: list[UserIdentity] = []
    UserLookup(Loop(), 1, service).ask(bench(TASK).units["other"].definition, answered.append)
    assert answered == [UserIdentity()]
    assert service.lookups == []
