"""Stories of runs and service instances that together cover the transition tables."""

import pytest

from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.services import instance_transitions
from tests.stories import Words, deeds, pairs, steps_of

RUN = Words(run_transitions.State, run_transitions.Event, run_transitions.Action)
INSTANCE = Words(instance_transitions.State, instance_transitions.Event, instance_transitions.Action)

RUNS = {
    "a run": """
        queued
        slot: take slot -> decided
        stored: spawn -> starting
        started: store start -> running
        exited: end -> ended
    """,
    "a retry": """
        waiting
        due: -> queued
        stop: cancel -> ended
    """,
    "a retry that is stopped": """
        waiting
        stop: cancel -> ended
    """,
    "a stop before the request": """
        decided
        stop: cancel -> ended
    """,
    "a stop during the start": """
        starting
        stop: signal -> stopping
        started: store start -> stopping
        stop: signal -> stopping
        exited: end -> ended
    """,
    "a stop": """
        running
        stop: signal -> stopping
        lost: crash -> ended
    """,
    "a run that cannot be started": """
        starting
        exited: end -> ended
    """,
    "a killed root loses a start": """
        starting
        lost: crash -> ended
    """,
    "a killed root loses a run": """
        running
        lost: crash -> ended
    """,
    "a root that knows a queued run": """
        queued
        started: store start -> running
    """,
    "a root that knows a waiting run": """
        waiting
        started: store start -> running
    """,
    "a root that knows a decided run": """
        decided
        started: store start -> running
    """,
    "a root that knows the end of a queued run": """
        queued
        exited: end -> ended
    """,
    "a root that knows the end of a waiting run": """
        waiting
        exited: end -> ended
    """,
    "a root that knows the end of a decided run": """
        decided
        exited: end -> ended
    """,
}

INSTANCES = {
    "a service that is started and stopped": """
        stopped
        up: start -> starting
        started: await ready -> starting
        ready: watch health -> running
        healthy: reset failures, mark healthy -> running
        down: reset failures, stop -> stopping
        again: -> stopped
        restart: start -> starting
    """,
    "a process that started after the stop": """
        stopped
        started: stop -> stopped
    """,
    "a dependency is missing": """
        starting
        hold: -> held
        released: start -> starting
        hold: -> held
        up: start -> starting
        hold: -> held
        restart: start -> starting
        hold: -> held
        down: reset failures -> stopped
    """,
    "a service that fails again and again": """
        starting
        again: wait -> backoff
        delay over: start -> starting
        hopeless: wait -> fatal
        delay over: start -> starting
        final: -> exited
    """,
    "a running service that fails": """
        running
        again: wait -> backoff
        up: cancel wait, reset failures, start -> starting
    """,
    "a running service that fails too often": """
        running
        hopeless: wait -> fatal
        up: cancel wait, reset failures, start -> starting
    """,
    "a service that is done": """
        running
        final: -> exited
        up: reset failures, start -> starting
    """,
    "requests after the end": """
        exited
        restart: reset failures, start -> starting
        down: reset failures, stop -> stopping
    """,
    "a stop after the end": """
        exited
        down: reset failures -> stopped
    """,
    "requests during the delay": """
        backoff
        restart: cancel wait, reset failures, start -> starting
        restart: reset failures, stop -> restarting
    """,
    "a stop during the delay": """
        backoff
        down: cancel wait, reset failures -> stopped
    """,
    "requests after the last attempt": """
        fatal
        restart: cancel wait, reset failures, start -> starting
    """,
    "a stop after the last attempt": """
        fatal
        down: cancel wait, reset failures -> stopped
    """,
    "a restart": """
        running
        restart: reset failures, stop -> restarting
        down: -> stopping
        up: -> restarting
        again: start -> starting
    """,
    "a restart during the stop": """
        stopping
        restart: -> restarting
        final: start -> starting
    """,
    "a restart whose last exit is one too many": """
        restarting
        hopeless: start -> starting
    """,
    "a stop that ends well": """
        stopping
        final: -> stopped
    """,
    "a stop whose exit is one too many": """
        stopping
        hopeless: -> stopped
    """,
    "an unhealthy start": """
        starting
        unhealthy: stop unhealthy -> failing
        again: wait -> backoff
    """,
    "an unhealthy service": """
        running
        unhealthy: stop unhealthy -> failing
        final: -> exited
    """,
    "an unhealthy service that fails too often": """
        failing
        hopeless: wait -> fatal
    """,
    "a start while it fails": """
        failing
        up: reset failures -> restarting
    """,
    "a restart while it fails": """
        failing
        restart: reset failures -> restarting
    """,
    "a stop while it fails": """
        failing
        down: reset failures -> stopping
    """,
}


@pytest.mark.parametrize("story", list(RUNS))
def test_run(story: str) -> None:
    """A run passes through the states and requires the actions of its story."""
    for state, event, following, actions in steps_of(RUN, RUNS[story]):
        assert run_transitions.step(state, event) == (following, actions)


@pytest.mark.parametrize("story", list(INSTANCES))
def test_instance(story: str) -> None:
    """An instance passes through the states and requires the actions of its story."""
    for state, event, following, actions in steps_of(INSTANCE, INSTANCES[story]):
        assert instance_transitions.step(state, event) == (following, actions)


def test_stories_cover_the_run_table() -> None:
    """A pair of state and event without a story neither changes a run nor requires an action."""
    assert pairs(RUN, RUNS.values()) == deeds(run_transitions.TABLE)


def test_stories_cover_the_instance_table() -> None:
    """A pair of state and event without a story neither changes an instance nor requires an action."""
    assert pairs(INSTANCE, INSTANCES.values()) == deeds(instance_transitions.TABLE)
