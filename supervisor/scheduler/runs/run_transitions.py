"""The state machine of a run as one table: (state, event) -> (state, actions). Pure and total.

::

    QUEUED --slot--> DECIDED --stored--> STARTING --started--> RUNNING --exited--> ENDED
      ^                                     |                     |
      | due                                 +------- stop --------+--> STOPPING --exited--> ENDED
    WAITING (for its due time)

Users see every state before ``RUNNING`` as pending. ``DECIDED`` lasts until the decision is stored and the user is
looked up. ``STARTING`` lasts from the spawn request until the root reports a process. ``STOP`` ends a run at once if no
spawn request was sent. ``LOST``: a process was requested, but the root's snapshot does not list the run.
Pairs missing from the table change nothing.
"""

import enum


class State(enum.Enum):
    """The states, as drawn above."""

    QUEUED = "queued"
    WAITING = "waiting"
    DECIDED = "decided"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


STARTED = frozenset({State.STARTING, State.RUNNING, State.STOPPING})
"""States after the request to start; the executor of the run, usually the root, will report its end."""


class Event(enum.Enum):
    """The events, as drawn above."""

    SLOT = "slot"
    DUE = "due"
    STORED = "stored"
    STARTED = "started"
    STOP = "stop"
    EXITED = "exited"
    LOST = "lost"


class Action(enum.Enum):
    """The side effects of a transition; the engine carries them out in order."""

    TAKE_SLOT = "take slot"
    SPAWN = "spawn"
    STORE_START = "store start"
    SIGNAL = "signal"
    CANCEL = "cancel"
    END = "end"
    CRASH = "crash"


_S, _E, _A = State, Event, Action
_Outcome = tuple[State, tuple[Action, ...]]

TABLE: dict[tuple[State, Event], _Outcome] = {
    (_S.QUEUED, _E.SLOT): (_S.DECIDED, (_A.TAKE_SLOT,)),
    (_S.QUEUED, _E.STARTED): (_S.RUNNING, (_A.STORE_START,)),
    (_S.QUEUED, _E.STOP): (_S.ENDED, (_A.CANCEL,)),
    (_S.QUEUED, _E.EXITED): (_S.ENDED, (_A.END,)),
    (_S.WAITING, _E.DUE): (_S.QUEUED, ()),
    (_S.WAITING, _E.STARTED): (_S.RUNNING, (_A.STORE_START,)),
    (_S.WAITING, _E.STOP): (_S.ENDED, (_A.CANCEL,)),
    (_S.WAITING, _E.EXITED): (_S.ENDED, (_A.END,)),
    (_S.DECIDED, _E.STORED): (_S.STARTING, (_A.SPAWN,)),
    (_S.DECIDED, _E.STARTED): (_S.RUNNING, (_A.STORE_START,)),
    (_S.DECIDED, _E.STOP): (_S.ENDED, (_A.CANCEL,)),
    (_S.DECIDED, _E.EXITED): (_S.ENDED, (_A.END,)),
    (_S.STARTING, _E.STARTED): (_S.RUNNING, (_A.STORE_START,)),
    (_S.STARTING, _E.STOP): (_S.STOPPING, (_A.SIGNAL,)),
    (_S.STARTING, _E.EXITED): (_S.ENDED, (_A.END,)),
    (_S.STARTING, _E.LOST): (_S.ENDED, (_A.CRASH,)),
    (_S.RUNNING, _E.STOP): (_S.STOPPING, (_A.SIGNAL,)),
    (_S.RUNNING, _E.EXITED): (_S.ENDED, (_A.END,)),
    (_S.RUNNING, _E.LOST): (_S.ENDED, (_A.CRASH,)),
    (_S.STOPPING, _E.STARTED): (_S.STOPPING, (_A.STORE_START,)),
    (_S.STOPPING, _E.STOP): (_S.STOPPING, (_A.SIGNAL,)),
    (_S.STOPPING, _E.EXITED): (_S.ENDED, (_A.END,)),
    (_S.STOPPING, _E.LOST): (_S.ENDED, (_A.CRASH,)),
}
"""All pairs that change the state or require an action."""


def step(state: State, event: Event) -> _Outcome:
    """Return the next state and the actions; a pair missing from the table keeps the state."""
    return TABLE.get((state, event), (state, ()))
