"""The life of a service instance as one table: (state, event) -> (state, actions). Pure and total.

::

    STOPPED --up--> STARTING --started--> RUNNING --exit--> BACKOFF --delay over--> STARTING
                                             |                 |
                                           down              exit for good --> EXITED, too many --> FATAL
                                             v
                                          STOPPING --exit--> STOPPED

What an exit means is decided by :func:`classify` before it enters the table, so that the table knows no policy.
"""

import enum


class State(enum.Enum):
    """Where a service instance stands; the values are what users see."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    EXITED = "exited"
    FATAL = "fatal"


class Event(enum.Enum):
    """What can happen to it."""

    UP = "up"
    DOWN = "down"
    STARTED = "started"
    HEALTHY = "healthy"
    AGAIN = "again"
    FINAL = "final"
    HOPELESS = "hopeless"
    DELAY_OVER = "delay over"


class Action(enum.Enum):
    """What has to be done about it."""

    START = "start"
    STOP = "stop"
    WATCH_HEALTH = "watch health"
    RESET_FAILURES = "reset failures"
    WAIT = "wait"
    CANCEL_WAIT = "cancel wait"


_S, _E, _A = State, Event, Action
_Outcome = tuple[State, tuple[Action, ...]]

TABLE: dict[tuple[State, Event], _Outcome] = {
    (_S.STOPPED, _E.UP): (_S.STARTING, (_A.START,)),
    (_S.STOPPED, _E.DOWN): (_S.STOPPED, ()),
    (_S.STOPPED, _E.STARTED): (_S.STOPPED, (_A.STOP,)),
    (_S.STOPPED, _E.HEALTHY): (_S.STOPPED, ()),
    (_S.STOPPED, _E.AGAIN): (_S.STOPPED, ()),
    (_S.STOPPED, _E.FINAL): (_S.STOPPED, ()),
    (_S.STOPPED, _E.HOPELESS): (_S.STOPPED, ()),
    (_S.STOPPED, _E.DELAY_OVER): (_S.STOPPED, ()),
    (_S.STARTING, _E.UP): (_S.STARTING, ()),
    (_S.STARTING, _E.DOWN): (_S.STOPPING, (_A.STOP,)),
    (_S.STARTING, _E.STARTED): (_S.RUNNING, (_A.WATCH_HEALTH,)),
    (_S.STARTING, _E.HEALTHY): (_S.STARTING, ()),
    (_S.STARTING, _E.AGAIN): (_S.BACKOFF, (_A.WAIT,)),
    (_S.STARTING, _E.FINAL): (_S.EXITED, ()),
    (_S.STARTING, _E.HOPELESS): (_S.FATAL, ()),
    (_S.STARTING, _E.DELAY_OVER): (_S.STARTING, ()),
    (_S.RUNNING, _E.UP): (_S.RUNNING, ()),
    (_S.RUNNING, _E.DOWN): (_S.STOPPING, (_A.STOP,)),
    (_S.RUNNING, _E.STARTED): (_S.RUNNING, ()),
    (_S.RUNNING, _E.HEALTHY): (_S.RUNNING, (_A.RESET_FAILURES,)),
    (_S.RUNNING, _E.AGAIN): (_S.BACKOFF, (_A.WAIT,)),
    (_S.RUNNING, _E.FINAL): (_S.EXITED, ()),
    (_S.RUNNING, _E.HOPELESS): (_S.FATAL, ()),
    (_S.RUNNING, _E.DELAY_OVER): (_S.RUNNING, ()),
    (_S.BACKOFF, _E.UP): (_S.STARTING, (_A.CANCEL_WAIT, _A.START)),
    (_S.BACKOFF, _E.DOWN): (_S.STOPPED, (_A.CANCEL_WAIT,)),
    (_S.BACKOFF, _E.STARTED): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.HEALTHY): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.AGAIN): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.FINAL): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.HOPELESS): (_S.BACKOFF, ()),
    (_S.BACKOFF, _E.DELAY_OVER): (_S.STARTING, (_A.START,)),
    (_S.STOPPING, _E.UP): (_S.STOPPING, ()),
    (_S.STOPPING, _E.DOWN): (_S.STOPPING, ()),
    (_S.STOPPING, _E.STARTED): (_S.STOPPING, ()),
    (_S.STOPPING, _E.HEALTHY): (_S.STOPPING, ()),
    (_S.STOPPING, _E.AGAIN): (_S.STOPPED, ()),
    (_S.STOPPING, _E.FINAL): (_S.STOPPED, ()),
    (_S.STOPPING, _E.HOPELESS): (_S.STOPPED, ()),
    (_S.STOPPING, _E.DELAY_OVER): (_S.STOPPING, ()),
    (_S.EXITED, _E.UP): (_S.STARTING, (_A.RESET_FAILURES, _A.START)),
    (_S.EXITED, _E.DOWN): (_S.STOPPED, ()),
    (_S.EXITED, _E.STARTED): (_S.EXITED, ()),
    (_S.EXITED, _E.HEALTHY): (_S.EXITED, ()),
    (_S.EXITED, _E.AGAIN): (_S.EXITED, ()),
    (_S.EXITED, _E.FINAL): (_S.EXITED, ()),
    (_S.EXITED, _E.HOPELESS): (_S.EXITED, ()),
    (_S.EXITED, _E.DELAY_OVER): (_S.EXITED, ()),
    (_S.FATAL, _E.UP): (_S.STARTING, (_A.RESET_FAILURES, _A.START)),
    (_S.FATAL, _E.DOWN): (_S.STOPPED, ()),
    (_S.FATAL, _E.STARTED): (_S.FATAL, ()),
    (_S.FATAL, _E.HEALTHY): (_S.FATAL, ()),
    (_S.FATAL, _E.AGAIN): (_S.FATAL, ()),
    (_S.FATAL, _E.FINAL): (_S.FATAL, ()),
    (_S.FATAL, _E.HOPELESS): (_S.FATAL, ()),
    (_S.FATAL, _E.DELAY_OVER): (_S.FATAL, ()),
}


def step(state: State, event: Event) -> _Outcome:
    """The next state and what to do."""
    return TABLE[state, event]


def classify(restart: str, *, succeeded: bool, requested: bool, failures: int, attempts: int) -> Event:
    """What the exit of an instance means under its restart policy.

    Args:
        restart: ``always``, ``on_failure`` or ``never``.
        succeeded: it ended with a status that counts as success.
        requested: somebody stopped this run; a service's run is then recycled whatever the policy says.
        failures: quick exits in a row, this one included (0 when it had been healthy).
        attempts: how many quick exits in a row are forgiven.
    """
    if requested:
        return Event.AGAIN
    if restart == "never" or (restart == "on_failure" and succeeded):
        return Event.FINAL
    return Event.HOPELESS if failures > attempts else Event.AGAIN
