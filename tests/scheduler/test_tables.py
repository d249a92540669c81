import itertools

import pytest

from supervisor.scheduler import runs, services


def test_the_run_table_is_total() -> None:
    """Every event has an answer in every state."""
    assert set(runs.TABLE) == set(itertools.product(runs.State, runs.Event))


def test_the_service_table_is_total() -> None:
    """Every event has an answer in every state."""
    assert set(services.TABLE) == set(itertools.product(services.State, services.Event))


def test_nothing_leaves_ended() -> None:
    """An ended run stays ended and does nothing, whatever arrives late."""
    for event in runs.Event:
        assert runs.step(runs.State.ENDED, event) == (runs.State.ENDED, ())


def test_every_run_can_end() -> None:
    """From each state an end is reachable by events that the outside always delivers."""
    for state in runs.State:
        reached = {state}
        while True:
            more = {runs.step(one, event)[0] for one in reached for event in runs.Event} | reached
            if more == reached:
                break
            reached = more
        assert runs.State.ENDED in reached


@pytest.mark.parametrize("event", list(runs.Event))
def test_only_an_end_ends(event: runs.Event) -> None:
    """A run enters ENDED with exactly one of the actions that store an end, and never without."""
    endings = {runs.Action.END, runs.Action.CANCEL, runs.Action.CRASH}
    for state in set(runs.State) - {runs.State.ENDED}:
        following, actions = runs.step(state, event)
        assert (following is runs.State.ENDED) == (len(endings.intersection(actions)) == 1)


def test_a_run_is_spawned_once() -> None:
    """SPAWN is sent on the way into STARTING, once the decision is stored; nowhere else."""
    spawning = {key for key, (_, actions) in runs.TABLE.items() if runs.Action.SPAWN in actions}
    assert spawning == {(runs.State.DECIDED, runs.Event.STORED)}


def test_what_the_root_was_not_told_of_needs_no_signal() -> None:
    """A stop ends at once what the root does not hold, and signals what it does."""
    for state in set(runs.State) - {runs.State.ENDED}:
        expected = (runs.Action.SIGNAL,) if state in runs.HELD_BY_ROOT else (runs.Action.CANCEL,)
        assert runs.step(state, runs.Event.STOP)[1] == expected


def test_lost_means_crashed_only_when_it_ran() -> None:
    """What the root does not know crashed if it ran, and goes on waiting if it did not."""
    assert runs.step(runs.State.RUNNING, runs.Event.LOST) == (runs.State.ENDED, (runs.Action.CRASH,))
    assert runs.step(runs.State.QUEUED, runs.Event.LOST) == (runs.State.QUEUED, ())


def test_a_stopped_service_does_not_come_back() -> None:
    """After DOWN, from whatever state, no sequence of events but those of people starts an instance."""
    asked = {services.Event.UP, services.Event.RESTART}
    for begin in services.State:
        for events in itertools.product(set(services.Event) - asked, repeat=3):
            state, _ = services.step(begin, services.Event.DOWN)
            for event in events:
                state, actions = services.step(state, event)
                assert services.Action.START not in actions


EXITS = (services.Event.AGAIN, services.Event.FINAL, services.Event.HOPELESS)


@pytest.mark.parametrize("state", list(services.State))
@pytest.mark.parametrize("asked", [services.Event.UP, services.Event.RESTART])
@pytest.mark.parametrize("exited", EXITS)
def test_who_asks_for_it_gets_it(state: services.State, asked: services.Event, exited: services.Event) -> None:
    """From whatever state, UP and RESTART end in a start: at once, or when what still ends has ended."""
    begin = state
    state, actions = services.step(state, asked)
    if state in services.ENDING:
        state, actions = services.step(state, exited)
    if asked is services.Event.RESTART or begin not in (services.State.STARTING, services.State.RUNNING):
        assert services.Action.START in actions
    assert state in (services.State.STARTING, services.State.RUNNING)


def test_the_last_word_counts() -> None:
    """While an instance ends, UP, RESTART and DOWN only change what comes afterwards."""
    last = {
        services.Event.UP: services.State.RESTARTING,
        services.Event.RESTART: services.State.RESTARTING,
        services.Event.DOWN: services.State.STOPPING,
    }
    for state, (event, following) in itertools.product(services.ENDING, last.items()):
        after, actions = services.step(state, event)
        assert after is following
        assert set(actions) <= {services.Action.RESET_FAILURES}


def test_a_process_is_only_stopped_where_there_may_be_one() -> None:
    """STOP is for those that start or run, and for a process that appears where none is wanted."""
    stopping = {key[0] for key, (_, actions) in services.TABLE.items() if services.Action.STOP in actions}
    assert stopping == {services.State.STARTING, services.State.RUNNING, services.State.STOPPED}
    for state, event in services.TABLE:
        if state in services.ENDING:
            assert services.Action.STOP not in services.step(state, event)[1]


def test_waiting_and_its_end() -> None:
    """Those who wait do so from the moment on they come into their state; leaving it in any other way ends the wait."""
    waiting = {services.State.BACKOFF, services.State.FATAL}
    for (state, event), (following, actions) in services.TABLE.items():
        assert (services.Action.WAIT in actions) == (following in waiting and state not in waiting)
        left = state in waiting and following not in waiting and event is not services.Event.DELAY_OVER
        assert (services.Action.CANCEL_WAIT in actions) == left


def test_what_users_see() -> None:
    """Whatever ends at our request is shown as stopping; the others under their own names."""
    assert {state.shown for state in services.ENDING} == {"stopping"}
    assert services.State.HELD.shown == "starting"
    hidden = {"restarting", "failing", "held"}
    assert {state.shown for state in services.State} == {state.value for state in services.State} - hidden


def test_starting_is_entered_with_a_start() -> None:
    """STARTING and the action START come together, from whatever state."""
    for (state, _), (following, actions) in services.TABLE.items():
        entered = following is services.State.STARTING and state is not services.State.STARTING
        assert entered == (services.Action.START in actions)


@pytest.mark.parametrize(
    ("restart", "succeeded", "failures", "expected"),
    [
        ("always", True, 1, services.Event.AGAIN),
        ("always", False, 3, services.Event.AGAIN),
        ("always", False, 4, services.Event.HOPELESS),
        ("on_failure", True, 4, services.Event.FINAL),
        ("on_failure", False, 0, services.Event.AGAIN),
        ("never", False, 1, services.Event.FINAL),
    ],
)
def test_restart_policies(restart: str, succeeded: bool, failures: int, expected: services.Event) -> None:
    """always, on_failure and never do what their names say; too many quick failures in a row are fatal."""
    found = services.classify(restart, succeeded=succeeded, requested=False, failures=failures, attempts=3)
    assert found is expected


def test_a_requested_stop_of_one_run_recycles_it() -> None:
    """Stopping the run of a service brings it back under every policy."""
    for restart in ("always", "on_failure", "never"):
        found = services.classify(restart, succeeded=False, requested=True, failures=9, attempts=0)
        assert found is services.Event.AGAIN
