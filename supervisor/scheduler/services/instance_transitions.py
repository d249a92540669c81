"""The life of a service instance as one table: (state, event) -> (state, actions). Pure and total.

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

``STOPPING``, ``RESTARTING`` and ``FAILING`` all wait for an exit and differ only in the state afterwards. A start
during a stop turns ``STOPPING`` into ``RESTARTING``, and a stop turns it back. An unhealthy instance is ``FAILING``
while it is stopped; its exit counts as a failure. :func:`classify` turns an exit into an event, so the table contains
no policy. ``HELD`` has no process: it waits for the dependencies of the service.
"""

import enum


class State(enum.Enum):
    """State of a service instance."""

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
        """The state that users see."""
        if self is State.HELD:
            return State.STARTING.value
        return State.STOPPING.value if self in ENDING else self.value


ENDING = frozenset({State.STOPPING, State.RESTARTING, State.FAILING})
"""States with a pending stop."""


class Event(enum.Enum):
    """Event in the life of an instance."""

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
    """Action that a transition requires."""

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
    (_S.STOPPED, _E.DOWN): (_S.STOPPED, ()),
    (_S.STOPPED, _E.RESTART): (_S.STARTING, (_A.START,)),
    (_S.STOPPED, _E.STARTED): (_S.STOPPED, (_A.STOP,)),
    (_S.STOPPED, _E.READY): (_S.STOPPED, ()),
    (_S.STOPPED, _E.UNHEALTHY): (_S.STOPPED, ()),
    (_S.STOPPED, _E.HOLD): (_S.STOPPED, ()),
    (_S.STOPPED, _E.RELEASED): (_S.STOPPED, ()),
    (_S.STOPPED, _E.HEALTHY): (_S.STOPPED, ()),
    (_S.STOPPED, _E.AGAIN): (_S.STOPPED, ()),
    (_S.STOPPED, _E.FINAL): (_S.STOPPED, ()),
    (_S.STOPPED, _E.HOPELESS): (_S.STOPPED, ()),
    (_S.STOPPED, _E.DELAY_OVER): (_S.STOPPED, ()),
    (_S.STARTING, _E.UP): (_S.STARTING, ()),
    (_S.STARTING, _E.DOWN): (_S.STOPPING, (_A.RESET_FAILURES, _A.STOP)),
    (_S.STARTING, _E.RESTART): (_S.RESTARTING, (_A.RESET_FAILURES, _A.STOP)),
    (_S.STARTING, _E.STARTED): (_S.STARTING, (_A.AWAIT_READY,)),
    (_S.STARTING, _E.READY): (_S.RUNNING, (_A.WATCH_HEALTH,)),
    (_S.STARTING, _E.UNHEALTHY): (_S.FAILING, (_A.STOP_UNHEALTHY,)),
    (_S.STARTING, _E.HOLD): (_S.HELD, ()),
    (_S.STARTING, _E.RELEASED): (_S.STARTING, ()),
    (_S.STARTING, _E.HEALTHY): (_S.STARTING, ()),
    (_S.STARTING, _E.AGAIN): (_S.BACKOFF, (_A.WAIT,)),
    (_S.STARTING, _E.FINAL): (_S.EXITED, ()),
    (_S.STARTING, _E.HOPELESS): (_S.FATAL, (_A.WAIT,)),
    (_S.STARTING, _E.DELAY_OVER): (_S.STARTING, ()),
    (_S.RUNNING, _E.UP): (_S.RUNNING, ()),
    (_S.RUNNING, _E.DOWN): (_S.STOPPING, (_A.RESET_FAILURES, _A.STOP)),
    (_S.RUNNING, _E.RESTART): (_S.RESTARTING, (_A.RESET_FAILURES, _A.STOP)),
    (_S.RUNNING, _E.STARTED): (_S.RUNNING, ()),
    (_S.RUNNING, _E.READY): (_S.RUNNING, ()),
    (_S.RUNNING, _E.UNHEALTHY): (_S.FAILING, (_A.STOP_UNHEALTHY,)),
    (_S.RUNNING, _E.HOLD): (_S.RUNNING, ()),
    (_S.RUNNING, _E.RELEASED): (_S.RUNNING, ()),
    (_S.RUNNING, _E.HEALTHY): (_S.RUNNING, (_A.RESET_FAILURES, _A.MARK_HEALTHY)),
    (_S.RUNNING, _E.AGAIN): (_S.BACKOFF, (_A.WAIT,)),
    (_S.RUNNING, _E.FINAL): (_S.EXITED, ()),
    (_S.RUNNING, _E.HOPELESS): (_S.FATAL, (_A.WAIT,)),
    (_S.RUNNING, _E.DELAY_OVER): (_S.RUNNING, ()),
    (_S.BACKOFF, _E.UP): (_S.STARTING, (_A.CANCEL_WAIT, _A.RESET_FAILURES, _A.START)),
    (_S.BACKOFF, _E.DOWN): (_S.STOPPED, (_A.CANCEL_WAIT, _A.RESET_FAILURES)),
    (_S.BACKOFF, _E.RESTART): (_S.STARTING, (_A.CANCEL_WAIT, _A.RESET_FAILURES, _A.START)),
    (_S.BACKOFF, _E.STARTED): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.READY): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.UNHEALTHY): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.HOLD): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.RELEASED): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.HEALTHY): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.AGAIN): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.FINAL): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.HOPELESS): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.DELAY_OVER): (_S.STARTING, (_A.START,)),
    (_S.STOPPING, _E.UP): (_S.RESTARTING, ()),
    (_S.STOPPING, _E.DOWN): (_S.STOPPING, ()),
    (_S.STOPPING, _E.RESTART): (_S.RESTARTING, ()),
    (_S.STOPPING, _E.STARTED): (_S.STOPPING, ()),
    (_S.STOPPING, _E.READY): (_S.STOPPING, ()),
    (_S.STOPPING, _E.UNHEALTHY): (_S.STOPPING, ()),
    (_S.STOPPING, _E.HOLD): (_S.STOPPING, ()),
    (_S.STOPPING, _E.RELEASED): (_S.STOPPING, ()),
    (_S.STOPPING, _E.HEALTHY): (_S.STOPPING, ()),
    (_S.STOPPING, _E.AGAIN): (_S.STOPPED, ()),
    (_S.STOPPING, _E.FINAL): (_S.STOPPED, ()),
    (_S.STOPPING, _E.HOPELESS): (_S.STOPPED, ()),
    (_S.STOPPING, _E.DELAY_OVER): (_S.STOPPING, ()),
    (_S.RESTARTING, _E.UP): (_S.RESTARTING, ()),
    (_S.RESTARTING, _E.DOWN): (_S.STOPPING, ()),
    (_S.RESTARTING, _E.RESTART): (_S.RESTARTING, ()),
    (_S.RESTARTING, _E.STARTED): (_S.RESTARTING, ()),
    (_S.RESTARTING, _E.READY): (_S.RESTARTING, ()),
    (_S.RESTARTING, _E.UNHEALTHY): (_S.RESTARTING, ()),
    (_S.RESTARTING, _E.HOLD): (_S.RESTARTING, ()),
    (_S.RESTARTING, _E.RELEASED): (_S.RESTARTING, ()),
    (_S.RESTARTING, _E.HEALTHY): (_S.RESTARTING, ()),
    (_S.RESTARTING, _E.AGAIN): (_S.STARTING, (_A.START,)),
    (_S.RESTARTING, _E.FINAL): (_S.STARTING, (_A.START,)),
    (_S.RESTARTING, _E.HOPELESS): (_S.STARTING, (_A.START,)),
    (_S.RESTARTING, _E.DELAY_OVER): (_S.RESTARTING, ()),
    (_S.FAILING, _E.UP): (_S.RESTARTING, (_A.RESET_FAILURES,)),
    (_S.FAILING, _E.DOWN): (_S.STOPPING, (_A.RESET_FAILURES,)),
    (_S.FAILING, _E.RESTART): (_S.RESTARTING, (_A.RESET_FAILURES,)),
    (_S.FAILING, _E.STARTED): (_S.FAILING, ()),
    (_S.FAILING, _E.READY): (_S.FAILING, ()),
    (_S.FAILING, _E.UNHEALTHY): (_S.FAILING, ()),
    (_S.FAILING, _E.HOLD): (_S.FAILING, ()),
    (_S.FAILING, _E.RELEASED): (_S.FAILING, ()),
    (_S.FAILING, _E.HEALTHY): (_S.FAILING, ()),
    (_S.FAILING, _E.AGAIN): (_S.BACKOFF, (_A.WAIT,)),
    (_S.FAILING, _E.FINAL): (_S.EXITED, ()),
    (_S.FAILING, _E.HOPELESS): (_S.FATAL, (_A.WAIT,)),
    (_S.FAILING, _E.DELAY_OVER): (_S.FAILING, ()),
    (_S.HELD, _E.UP): (_S.STARTING, (_A.START,)),
    (_S.HELD, _E.DOWN): (_S.STOPPED, (_A.RESET_FAILURES,)),
    (_S.HELD, _E.RESTART): (_S.STARTING, (_A.START,)),
    (_S.HELD, _E.STARTED): (_S.HELD, ()),
    (_S.HELD, _E.READY): (_S.HELD, ()),
    (_S.HELD, _E.UNHEALTHY): (_S.HELD, ()),
    (_S.HELD, _E.HOLD): (_S.HELD, ()),
    (_S.HELD, _E.RELEASED): (_S.STARTING, (_A.START,)),
    (_S.HELD, _E.HEALTHY): (_S.HELD, ()),
    (_S.HELD, _E.AGAIN): (_S.HELD, ()),
    (_S.HELD, _E.FINAL): (_S.HELD, ()),
    (_S.HELD, _E.HOPELESS): (_S.HELD, ()),
    (_S.HELD, _E.DELAY_OVER): (_S.HELD, ()),
    (_S.EXITED, _E.UP): (_S.STARTING, (_A.RESET_FAILURES, _A.START)),
    (_S.EXITED, _E.DOWN): (_S.STOPPED, (_A.RESET_FAILURES,)),
    (_S.EXITED, _E.RESTART): (_S.STARTING, (_A.RESET_FAILURES, _A.START)),
    (_S.EXITED, _E.STARTED): (_S.EXITED, ()),
    (_S.EXITED, _E.READY): (_S.EXITED, ()),
    (_S.EXITED, _E.UNHEALTHY): (_S.EXITED, ()),
    (_S.EXITED, _E.HOLD): (_S.EXITED, ()),
    (_S.EXITED, _E.RELEASED): (_S.EXITED, ()),
    (_S.EXITED, _E.HEALTHY): (_S.EXITED, ()),
    (_S.EXITED, _E.AGAIN): (_S.EXITED, ()),
    (_S.EXITED, _E.FINAL): (_S.EXITED, ()),
    (_S.EXITED, _E.HOPELESS): (_S.EXITED, ()),
    (_S.EXITED, _E.DELAY_OVER): (_S.EXITED, ()),
    (_S.FATAL, _E.UP): (_S.STARTING, (_A.CANCEL_WAIT, _A.RESET_FAILURES, _A.START)),
    (_S.FATAL, _E.DOWN): (_S.STOPPED, (_A.CANCEL_WAIT, _A.RESET_FAILURES)),
    (_S.FATAL, _E.RESTART): (_S.STARTING, (_A.CANCEL_WAIT, _A.RESET_FAILURES, _A.START)),
    (_S.FATAL, _E.STARTED): (_S.FATAL, ()),
    (_S.FATAL, _E.READY): (_S.FATAL, ()),
    (_S.FATAL, _E.UNHEALTHY): (_S.FATAL, ()),
    (_S.FATAL, _E.HOLD): (_S.FATAL, ()),
    (_S.FATAL, _E.RELEASED): (_S.FATAL, ()),
    (_S.FATAL, _E.HEALTHY): (_S.FATAL, ()),
    (_S.FATAL, _E.AGAIN): (_S.FATAL, ()),
    (_S.FATAL, _E.FINAL): (_S.FATAL, ()),
    (_S.FATAL, _E.HOPELESS): (_S.FATAL, ()),
    (_S.FATAL, _E.DELAY_OVER): (_S.STARTING, (_A.START,)),
}


def step(state: State, event: Event) -> _Outcome:
    """Return the next state and the actions."""
    return TABLE[state, event]


def classify(restart: str, *, succeeded: bool, requested: bool, failures: int, attempts: float) -> Event:
    """Return the event for the exit of an instance under its restart policy.

    Args:
        restart: ``always``, ``on_failure`` or ``never``.
        succeeded: whether the exit code counts as success.
        requested: whether the run was stopped on request; then it restarts under every policy.
        failures: consecutive quick exits, this one included (0 after a healthy run).
        attempts: tolerated consecutive quick exits; may be infinite.
    """
    if requested:
        return Event.AGAIN
    if restart == "never" or (restart == "on_failure" and succeeded):
        return Event.FINAL
    return Event.HOPELESS if failures > attempts else Event.AGAIN
