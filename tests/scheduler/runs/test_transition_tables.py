import itertools
from types import ModuleType

import pytest

from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.services import instance_transitions


@pytest.mark.parametrize("table", [run_transitions, instance_transitions])
def test_table_has_only_effective_pairs(table: ModuleType) -> None:
    """Every event has an outcome in every state: that of the table, or the same state and no action."""
    for pair in itertools.product(table.State, table.Event):
        ignored = pair[0], ()
        assert table.step(*pair) == table.TABLE.get(pair, ignored)
        assert table.TABLE.get(pair) != ignored
    assert {event for _, event in table.TABLE} == set(table.Event)


def test_ended_is_final() -> None:
    """An ended run stays ended and requires no action, whatever event arrives late."""
    for event in run_transitions.Event:
        assert run_transitions.step(run_transitions.State.ENDED, event) == (run_transitions.State.ENDED, ())


def test_ended_is_reachable() -> None:
    """Every state of a run can reach ENDED."""
    for state in run_transitions.State:
        reached = {state}
        while True:
            more = {
                run_transitions.step(from_state, event)[0] for from_state in reached for event in run_transitions.Event
            } | reached
            if more == reached:
                break
            reached = more
        assert run_transitions.State.ENDED in reached


@pytest.mark.parametrize("event", list(run_transitions.Event))
def test_ended_has_one_ending_action(event: run_transitions.Event) -> None:
    """A run enters ENDED with exactly one of the actions that store an end, and never without."""
    endings = {run_transitions.Action.END, run_transitions.Action.CANCEL, run_transitions.Action.CRASH}
    for state in set(run_transitions.State) - {run_transitions.State.ENDED}:
        following, actions = run_transitions.step(state, event)
        assert (following is run_transitions.State.ENDED) == (len(endings.intersection(actions)) == 1)


def test_run_is_spawned_once() -> None:
    """SPAWN is required only on the way into STARTING, once the decision is stored."""
    spawning = {key for key, (_, actions) in run_transitions.TABLE.items() if run_transitions.Action.SPAWN in actions}
    assert spawning == {(run_transitions.State.DECIDED, run_transitions.Event.STORED)}


def test_unsent_run_needs_no_signal() -> None:
    """A stop cancels a run that the root does not hold, and signals a run that it holds."""
    for state in set(run_transitions.State) - {run_transitions.State.ENDED}:
        expected = (
            (run_transitions.Action.SIGNAL,) if state in run_transitions.STARTED else (run_transitions.Action.CANCEL,)
        )
        assert run_transitions.step(state, run_transitions.Event.STOP)[1] == expected


def test_lost_run() -> None:
    """A run unknown to the root counts as crashed if it was running; a queued run stays queued."""
    assert run_transitions.step(run_transitions.State.RUNNING, run_transitions.Event.LOST) == (
        run_transitions.State.ENDED,
        (run_transitions.Action.CRASH,),
    )
    assert run_transitions.step(run_transitions.State.QUEUED, run_transitions.Event.LOST) == (
        run_transitions.State.QUEUED,
        (),
    )


def test_stopped_instance_stays_down() -> None:
    """After DOWN, from any state, only UP or RESTART starts an instance."""
    commands = {instance_transitions.Event.UP, instance_transitions.Event.RESTART}
    for start in instance_transitions.State:
        for events in itertools.product(set(instance_transitions.Event) - commands, repeat=3):
            state, _ = instance_transitions.step(start, instance_transitions.Event.DOWN)
            for event in events:
                state, actions = instance_transitions.step(state, event)
                assert instance_transitions.Action.START not in actions


EXITS = (instance_transitions.Event.AGAIN, instance_transitions.Event.FINAL, instance_transitions.Event.HOPELESS)


@pytest.mark.parametrize("state", list(instance_transitions.State))
@pytest.mark.parametrize("command", [instance_transitions.Event.UP, instance_transitions.Event.RESTART])
@pytest.mark.parametrize("exited", EXITS)
def test_requested_start_happens(
    state: instance_transitions.State, command: instance_transitions.Event, exited: instance_transitions.Event
) -> None:
    """From every state, UP and RESTART lead to a start, at once or after the present process has ended."""
    start = state
    state, actions = instance_transitions.step(state, command)
    if state in instance_transitions.ENDING:
        state, actions = instance_transitions.step(state, exited)
    if command is instance_transitions.Event.RESTART or start not in (
        instance_transitions.State.STARTING,
        instance_transitions.State.RUNNING,
    ):
        assert instance_transitions.Action.START in actions
    assert state in (instance_transitions.State.STARTING, instance_transitions.State.RUNNING)


def test_last_request_wins() -> None:
    """While an instance ends, UP, RESTART and DOWN only change the state that follows."""
    last = {
        instance_transitions.Event.UP: instance_transitions.State.RESTARTING,
        instance_transitions.Event.RESTART: instance_transitions.State.RESTARTING,
        instance_transitions.Event.DOWN: instance_transitions.State.STOPPING,
    }
    for state, (event, following) in itertools.product(instance_transitions.ENDING, last.items()):
        after, actions = instance_transitions.step(state, event)
        assert after is following
        assert set(actions) <= {instance_transitions.Action.RESET_FAILURES}


def test_stop_needs_a_process() -> None:
    """STOP occurs only for a starting or running process, or for a process that appears in a stopped instance."""
    stopping = {
        key[0]
        for key, (_, actions) in instance_transitions.TABLE.items()
        if instance_transitions.Action.STOP in actions
    }
    assert stopping == {
        instance_transitions.State.STARTING,
        instance_transitions.State.RUNNING,
        instance_transitions.State.STOPPED,
    }
    for state, event in instance_transitions.TABLE:
        if state in instance_transitions.ENDING:
            assert instance_transitions.Action.STOP not in instance_transitions.step(state, event)[1]


def test_wait_and_cancel() -> None:
    """Entering BACKOFF or FATAL starts a wait. Leaving them before its end cancels it."""
    waiting = {instance_transitions.State.BACKOFF, instance_transitions.State.FATAL}
    for (state, event), (following, actions) in instance_transitions.TABLE.items():
        assert (instance_transitions.Action.WAIT in actions) == (following in waiting and state not in waiting)
        leaves_waiting = (
            state in waiting and following not in waiting and event is not instance_transitions.Event.DELAY_OVER
        )
        assert (instance_transitions.Action.CANCEL_WAIT in actions) == leaves_waiting


def test_shown_states() -> None:
    """States that end on request are shown as stopping, HELD is shown as starting, and others by their names."""
    assert {state.shown for state in instance_transitions.ENDING} == {"stopping"}
    assert instance_transitions.State.HELD.shown == "starting"
    hidden = {"restarting", "failing", "held"}
    assert {state.shown for state in instance_transitions.State} == {
        state.value for state in instance_transitions.State
    } - hidden


def test_starting_requires_start() -> None:
    """The action START is required exactly when an instance enters STARTING."""
    for (state, _), (following, actions) in instance_transitions.TABLE.items():
        entered = following is instance_transitions.State.STARTING and state is not instance_transitions.State.STARTING
        assert entered == (instance_transitions.Action.START in actions)


@pytest.mark.parametrize(
    ("restart", "succeeded", "failures", "expected"),
    [
        ("always", True, 1, instance_transitions.Event.AGAIN),
        ("always", False, 3, instance_transitions.Event.AGAIN),
        ("always", False, 4, instance_transitions.Event.HOPELESS),
        ("on_failure", True, 4, instance_transitions.Event.FINAL),
        ("on_failure", False, 0, instance_transitions.Event.AGAIN),
        ("never", False, 1, instance_transitions.Event.FINAL),
    ],
)
def test_restart_policies(restart: str, succeeded: bool, failures: int, expected: instance_transitions.Event) -> None:
    """always, on_failure and never behave as named; too many quick failures in a row are fatal."""
    event = instance_transitions.classify(restart, succeeded=succeeded, requested=False, failures=failures, attempts=3)
    assert event is expected


def test_requested_stop_recycles_one_run() -> None:
    """A stop of a service's run restarts the instance under every policy."""
    for restart in ("always", "on_failure", "never"):
        event = instance_transitions.classify(restart, succeeded=False, requested=True, failures=9, attempts=0)
        assert event is instance_transitions.Event.AGAIN
