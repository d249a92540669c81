"""The state machine of a service instance as one table: (state, event) -> (state, actions). Pure and total.

::

    from                  event        to
    --------------------  -----------  ----------
    STOPPED               up, restart  STARTING
    STARTING              started      STARTING, until it is ready
                          ready        RUNNING
                          hold         HELD
    HELD                  released, up STARTING
                          down         STOPPED
    STARTING, RUNNING     unhealthy    FAILING
    STARTING, RUNNING,    again        BACKOFF
    FAILING               final        EXITED
                          hopeless     FATAL
                          down         STOPPING
                          restart      RESTARTING
    FAILING               up           RESTARTING
    BACKOFF, FATAL        delay over   STARTING
    BACKOFF, FATAL,       up, restart  STARTING
    EXITED                down         STOPPED
    STOPPING              any exit     STOPPED
                          up, restart  RESTARTING
    RESTARTING            any exit     STARTING
                          down         STOPPING

``STOPPING``, ``RESTARTING`` and ``FAILING`` all wait for an exit and differ only in the next state. A start request
turns ``STOPPING`` into ``RESTARTING``, and a stop request turns it back. An unhealthy instance is ``FAILING`` until it
exits; that exit counts as a failure. :func:`classify` turns an exit into an event, so the table contains no policy. A
``HELD`` instance has no process: it waits for the dependencies of the service.
Pairs missing from the table change nothing.
"""

import enum


class State(enum.Enum):
    """The states, as listed above."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    FAILING = "failing"
    HELD = "held"
    EXITED = "exited"
    FATAL = "fatal"

    @property
    def shown(self) -> str:
        """The state that users see: they need not know about HELD, RESTARTING and FAILING."""
        if self is State.HELD:
            return State.STARTING.value
        return State.STOPPING.value if self in ENDING else self.value


ENDING = frozenset({State.STOPPING, State.RESTARTING, State.FAILING})
"""States in which the process was asked to stop and has not exited."""


class Event(enum.Enum):
    """The events, as listed above; UP, DOWN and RESTART are requests."""

    UP = "up"
    DOWN = "down"
    RESTART = "restart"
    STARTED = "started"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    HOLD = "hold"
    RELEASED = "released"
    HEALTHY = "healthy"
    AGAIN = "again"
    FINAL = "final"
    HOPELESS = "hopeless"
    DELAY_OVER = "delay over"


class Action(enum.Enum):
    """The side effects of a transition; the controller carries them out in order."""

    START = "start"
    STOP = "stop"
    STOP_UNHEALTHY = "stop unhealthy"
    AWAIT_READY = "await ready"
    WATCH_HEALTH = "watch health"
    MARK_HEALTHY = "mark healthy"
    RESET_FAILURES = "reset failures"
    WAIT = "wait"
    CANCEL_WAIT = "cancel wait"


_S, _E, _A = State, Event, Action
_Outcome = tuple[State, tuple[Action, ...]]

TABLE: dict[tuple[State, Event], _Outcome] = {
    (_S.STOPPED, _E.UP): (_S.STARTING, (_A.START,)),
    (_S.STOPPED, _E.RESTART): (_S.STARTING, (_A.START,)),
    (_S.STOPPED, _E.STARTED): (_S.STOPPED, (_A.STOP,)),
    (_S.STARTING, _E.DOWN): (_S.STOPPING, (_A.RESET_FAILURES, _A.STOP)),
    (_S.STARTING, _E.RESTART): (_S.RESTARTING, (_A.RESET_FAILURES, _A.STOP)),
    (_S.STARTING, _E.STARTED): (_S.STARTING, (_A.AWAIT_READY,)),
    (_S.STARTING, _E.READY): (_S.RUNNING, (_A.WATCH_HEALTH,)),
    (_S.STARTING, _E.UNHEALTHY): (_S.FAILING, (_A.STOP_UNHEALTHY,)),
    (_S.STARTING, _E.HOLD): (_S.HELD, ()),
    (_S.STARTING, _E.AGAIN): (_S.BACKOFF, (_A.WAIT,)),
    (_S.STARTING, _E.FINAL): (_S.EXITED, ()),
    (_S.STARTING, _E.HOPELESS): (_S.FATAL, (_A.WAIT,)),
    (_S.RUNNING, _E.DOWN): (_S.STOPPING, (_A.RESET_FAILURES, _A.STOP)),
    (_S.RUNNING, _E.RESTART): (_S.RESTARTING, (_A.RESET_FAILURES, _A.STOP)),
    (_S.RUNNING, _E.UNHEALTHY): (_S.FAILING, (_A.STOP_UNHEALTHY,)),
    (_S.RUNNING, _E.HEALTHY): (_S.RUNNING, (_A.RESET_FAILURES, _A.MARK_HEALTHY)),
    (_S.RUNNING, _E.AGAIN): (_S.BACKOFF, (_A.WAIT,)),
    (_S.RUNNING, _E.FINAL): (_S.EXITED, ()),
    (_S.RUNNING, _E.HOPELESS): (_S.FATAL, (_A.WAIT,)),
    (_S.BACKOFF, _E.UP): (_S.STARTING, (_A.CANCEL_WAIT, _A.RESET_FAILURES, _A.START)),
    (_S.BACKOFF, _E.DOWN): (_S.STOPPED, (_A.CANCEL_WAIT, _A.RESET_FAILURES)),
    (_S.BACKOFF, _E.RESTART): (_S.STARTING, (_A.CANCEL_WAIT, _A.RESET_FAILURES, _A.START)),
    (_S.BACKOFF, _E.DELAY_OVER): (_S.STARTING, (_A.START,)),
    (_S.STOPPING, _E.UP): (_S.RESTARTING, ()),
    (_S.STOPPING, _E.RESTART): (_S.RESTARTING, ()),
    (_S.STOPPING, _E.AGAIN): (_S.STOPPED, ()),
    (_S.STOPPING, _E.FINAL): (_S.STOPPED, ()),
    (_S.STOPPING, _E.HOPELESS): (_S.STOPPED, ()),
    (_S.RESTARTING, _E.DOWN): (_S.STOPPING, ()),
    (_S.RESTARTING, _E.AGAIN): (_S.STARTING, (_A.START,)),
    (_S.RESTARTING, _E.FINAL): (_S.STARTING, (_A.START,)),
    (_S.RESTARTING, _E.HOPELESS): (_S.STARTING, (_A.START,)),
    (_S.FAILING, _E.UP): (_S.RESTARTING, (_A.RESET_FAILURES,)),
    (_S.FAILING, _E.DOWN): (_S.STOPPING, (_A.RESET_FAILURES,)),
    (_S.FAILING, _E.RESTART): (_S.RESTARTING, (_A.RESET_FAILURES,)),
    (_S.FAILING, _E.AGAIN): (_S.BACKOFF, (_A.WAIT,)),
    (_S.FAILING, _E.FINAL): (_S.EXITED, ()),
    (_S.FAILING, _E.HOPELESS): (_S.FATAL, (_A.WAIT,)),
    (_S.HELD, _E.UP): (_S.STARTING, (_A.START,)),
    (_S.HELD, _E.DOWN): (_S.STOPPED, (_A.RESET_FAILURES,)),
    (_S.HELD, _E.RESTART): (_S.STARTING, (_A.START,)),
    (_S.HELD, _E.RELEASED): (_S.STARTING, (_A.START,)),
    (_S.EXITED, _E.UP): (_S.STARTING, (_A.RESET_FAILURES, _A.START)),
    (_S.EXITED, _E.DOWN): (_S.STOPPED, (_A.RESET_FAILURES,)),
    (_S.EXITED, _E.RESTART): (_S.STARTING, (_A.RESET_FAILURES, _A.START)),
    (_S.FATAL, _E.UP): (_S.STARTING, (_A.CANCEL_WAIT, _A.RESET_FAILURES, _A.START)),
    (_S.FATAL, _E.DOWN): (_S.STOPPED, (_A.CANCEL_WAIT, _A.RESET_FAILURES)),
    (_S.FATAL, _E.RESTART): (_S.STARTING, (_A.CANCEL_WAIT, _A.RESET_FAILURES, _A.START)),
    (_S.FATAL, _E.DELAY_OVER): (_S.STARTING, (_A.START,)),
}
"""All pairs that change the state or require an action."""


def step(state: State, event: Event) -> _Outcome:
    """Return the next state and the actions; a pair missing from the table keeps the state."""
    return TABLE.get((state, event), (state, ()))


def classify(restart: str, *, succeeded: bool, requested: bool, failures: int, attempts: float) -> Event:
    """Return the event for the exit of an instance under its restart policy.

    Args:
        restart: ``always``, ``on_failure`` or ``never``.
        succeeded: whether the exit code counts as success.
        requested: whether a stop was requested; such an exit is never final and never a failure.
        failures: consecutive quick exits, including this one (0 after a healthy run).
        attempts: number of consecutive quick exits that are tolerated; may be infinite.
    """
    if requested:
        return Event.AGAIN
    if restart == "never" or (restart == "on_failure" and succeeded):
        return Event.FINAL
    return Event.HOPELESS if failures > attempts else Event.AGAIN
