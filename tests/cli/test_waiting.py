"""How the command waits for units to reach a state, and its time limits."""

from typing import Any

import pytest

from supervisor.cli.daemon_answers import AnswerObject, parse
from supervisor.cli.units.waiting import AwaitedState, stop_limit
from tests.support.fake_daemon import RUN

OTHER = RUN[:-1] + "W"


def unit(*instances: dict[str, Any], ready: bool = False, **more: Any) -> AnswerObject:
    import json

    definition: dict[str, Any] = {"gracefulStopMs": 5000} | ({"ready": {"timeoutMs": 60_000}} if ready else {})
    state = instances[0]["state"] if instances else "stopped"
    record = {"name": "web", "kind": "service", "state": state, "definition": definition}
    record |= {
        "active": {"running": 1, "pending": 0},
        "instances": [{"index": n} | instance for n, instance in enumerate(instances)],
    }
    return parse(json.dumps(record | more))


def runs(state: str = "running", run_id: str = RUN, **more: Any) -> dict[str, Any]:
    return {"state": state, "runId": run_id, **more}


def looks(awaited: AwaitedState, *looks: tuple[float, AnswerObject | None], active: tuple[str, ...] = ()) -> list[str]:
    """Return the verdict at each time: reached, failed or waits."""
    progress = [awaited.standing_of(record, lambda: active, now_s) for now_s, record in looks]
    return ["reached" if standing.reached else "failed" if standing.failed else "waits" for standing in progress]


def test_second_without_a_check() -> None:
    """Without a readiness check, a service is ready when its process has lived for a second."""
    awaited = AwaitedState("web", "ready", at_once=True)
    assert looks(
        awaited, (0, unit({"state": "starting"})), (1, unit(runs())), (1.9, unit(runs())), (2, unit(runs()))
    ) == [
        "waits",
        "waits",
        "waits",
        "reached",
    ]


def test_text_of_the_first_second() -> None:
    """Until a service without a readiness check has lived for a second, the progress says why it is not ready."""
    awaited = AwaitedState("web", "ready", at_once=True)
    texts = [awaited.standing_of(unit(runs()), lambda: (), now_s).text for now_s in (0, 0.9, 1)]
    assert texts == ["running for less than 1 s"] * 2 + ["running"]


def test_readiness_check() -> None:
    """With a readiness check, only the check counts, and every instance has to pass it."""
    awaited = AwaitedState("web", "ready", at_once=True)
    both = unit(runs(ready=True), runs(run_id=OTHER, ready=True), ready=True)
    ready_unit = unit(runs(ready=True), runs(run_id=OTHER), ready=True)
    assert looks(awaited, (0, ready_unit), (9, ready_unit), (9.1, both)) == ["waits", "waits", "reached"]
    assert looks(AwaitedState("web", "running"), (0, ready_unit), (1, ready_unit)) == ["waits", "reached"]


def test_earlier_run_does_not_count() -> None:
    """After a restart, the old process does not count as the new one."""
    awaited = AwaitedState("web", "ready", frozenset([RUN]), at_once=True)
    old, new = unit(runs(ready=True)), unit(runs(run_id=OTHER, ready=True))
    rolling = unit(runs(run_id=OTHER, ready=True), rolling={"done": 1, "total": 2})
    assert looks(awaited, (0, old), (5, old), (6, rolling), (7, new)) == ["waits", "waits", "waits", "reached"]


@pytest.mark.parametrize(
    ("later", "standing"),
    [
        (unit({"state": "backoff"}), "failed"),
        (unit(runs(run_id=OTHER)), "failed"),
        (unit({"state": "fatal", "failures": 4}), "failed"),
        (unit({"state": "stopped"}), "failed"),
        (unit({"state": "exited"}), "failed"),
        (unit({"state": "exited"}, lastRun={"endReason": "succeeded"}), "reached"),
        (None, "failed"),
    ],
)
def test_failed_start(later: AnswerObject | None, standing: str) -> None:
    """A start fails with the first exit, unless the service ends with success."""
    assert looks(AwaitedState("web", "ready", at_once=True), (0, unit(runs())), (0.5, later)) == ["waits", standing]


def test_wait_outlasts_failures() -> None:
    """A wait continues across restarts of the service, and ends when the service gives up."""
    awaited = AwaitedState("web", "ready")
    steps = [runs(), {"state": "backoff"}, runs(run_id=OTHER), runs(run_id=OTHER)]
    progress = looks(awaited, *((float(at), unit(step)) for at, step in enumerate(steps)))
    assert progress == ["waits", "waits", "waits", "reached"]
    assert looks(awaited, (9, unit({"state": "fatal"}))) == ["failed"]


def test_only_initial_runs_are_awaited() -> None:
    """A wait for the end of runs covers only the runs that existed at its start."""
    awaited = AwaitedState("job", "ended", frozenset([RUN]))
    assert looks(awaited, (0, None), active=(RUN, OTHER)) == ["waits"]
    assert looks(awaited, (0, None), active=(OTHER,)) == ["reached"]


def test_idle_and_stopped() -> None:
    """A task is idle when no run is active or waits; a service is stopped when all instances are."""
    task: dict[str, Any] = {"kind": "task", "instances": None}
    idle, busy = {"running": 0, "pending": 0}, {"running": 0, "pending": 1}
    for state in ("idle", "stopped"):
        assert looks(AwaitedState("job", state), (0, unit(**task, active=busy)), (0, unit(**task, active=idle))) == [
            "waits",
            "reached",
        ]
    assert looks(AwaitedState("job", "running"), (0, unit(**task, active=busy)), (0, unit(**task))) == [
        "waits",
        "reached",
    ]
    assert looks(
        AwaitedState("web", "stopped"), (0, unit(runs("stopping"))), (0, unit(runs("stopped"))), (0, None)
    ) == [
        "waits",
        "reached",
        "reached",
    ]


def test_time_limit_of_a_stop() -> None:
    """Services may stop one after the other, each within its stop signals and graceful_stop."""
    ladder = unit()
    ladder["definition"]["stopSignal"] = [["SIGINT", 2000], ["SIGTERM", 3000]]
    assert stop_limit({"a": unit(), "b": ladder}) == 5 + 10 + 10
