"""The life of a process in the root as one table: (state, event) -> (state, actions). Pure and total.

::

    UNKNOWN --prepare--> PREPARED --spawn--> WAITING --turn--> STARTING --started--> RUNNING --stop--> STOPPING
       |                                        ^                 |   |                                   |
       +-------------- spawn -------------------+---- short ------+   +--refused--> NEVER_STARTED       KILLED

    RUNNING, STOPPING, KILLED --exited--> DRAINING --drained--> DRAINED --none left--> SEALING --sealed--> REAPING
                                             | deadline            | deadline              ^                    | reaped
                                             v                     v                       |                    v
                                          CLOSING, SWEPT --drained--> KILLING -------------+                 REPORTED

A request that was announced is not sent again with the start. If the root does not have it, the run is ``AWAITED``
until the whole request arrives.

A run starts to end when its main process exits. Its pipes must then end, and so must all its other processes, in either
order and by one deadline. At the deadline, the root closes the pipes and kills the leftovers, or leaves them running if
the run is configured so. It is ``CLOSING`` while both are unfinished, ``SWEPT`` while only pipes are open, and
``KILLING`` while only leftovers are alive. Then the log is sealed. Until that is done, the main process stays a zombie,
because the kernel does not reuse the process id and the process group of a zombie. It is reaped last, which a tracer
(ptrace(2)) may delay. Then the run is reported, and the scheduler acknowledges the report once it has stored it.

An action may report its result as another event, which the dispatcher handles after the transition. A pair that the
table does not list changes nothing and requires no action. A state is entered only when all actions of its transition
are complete, so an interrupted transition is repeated.
"""

import enum


class State(enum.Enum):
    """The state of a run in the root."""

    UNKNOWN = "unknown"
    PREPARED = "prepared"
    AWAITED = "awaited"
    WAITING = "waiting"
    STARTING = "starting"
    NEVER_STARTED = "never started"
    RUNNING = "running"
    STOPPING = "stopping"
    KILLED = "killed"
    DRAINING = "draining"
    DRAINED = "drained"
    CLOSING = "closing"
    SWEPT = "swept"
    KILLING = "killing"
    SEALING = "sealing"
    REAPING = "reaping"
    REPORTED = "reported"


class Event(enum.Enum):
    """An event in the life of a process."""

    PREPARE = "prepare"
    """The scheduler announces a start."""
    DROPPED = "dropped"
    """The prepared process has ended."""
    SPAWN = "spawn"
    """The scheduler requests a start."""
    UNANNOUNCED = "unannounced"
    """The scheduler requests the start of an announced run, but the root does not have the request."""
    REJECTED = "rejected"
    """The scheduler knows that the requested start cannot succeed; the log of the run says why."""
    TURN = "turn"
    """The start has reached the head of the queue."""
    STARTED = "started"
    REFUSED = "refused"
    """The process cannot be started."""
    SHORT = "short"
    """A resource has run out."""
    FORGOTTEN = "forgotten"
    """The scheduler was replaced, and its successor will request the waiting start again."""
    STOP = "stop"
    KILL = "kill"
    """A forced stop: SIGKILL without a grace period."""
    TIMED_OUT = "timed out"
    OVERFLOWED = "overflowed"
    """The output has passed log_max_size."""
    CHECK = "check"
    """Something may have changed."""
    DUE = "due"
    """The deadline of the current step has passed."""
    LADDER_OVER = "ladder over"
    """All signals before SIGKILL were sent."""
    EXITED = "exited"
    """The main process has exited; its pipes are open."""
    EXITED_DRAINED = "exited drained"
    """The main process has exited after its pipes ended."""
    DRAINED = "drained"
    """The pipes have ended."""
    NONE_LEFT = "none left"
    UNEXECUTED = "unexecuted"
    """The main process died before it executed the command, was not being stopped, and left no processes."""
    LEFT = "left"
    """Leftovers are alive."""
    TO_LEAVE = "to leave"
    """Leftovers are alive, and ``leftovers = "leave"`` lets them run."""
    UNKILLABLE = "unkillable"
    """Leftovers are alive long after they were killed."""
    SEALED = "sealed"
    REAPED = "reaped"
    TRACED = "traced"
    """The main process cannot be reaped before its tracer has seen the exit."""
    ACKNOWLEDGED = "acknowledged"
    """The scheduler has stored the end."""


class Action(enum.Enum):
    """An action of a transition."""

    PREPARE = "prepare"
    ASK = "ask"
    QUEUE = "queue"
    START = "start"
    PUT_BACK = "put back"
    DEFER_STOP = "defer stop"
    ADOPT_START = "adopt start"
    REFUSE = "refuse"
    REPORT_UNSTARTED = "report unstarted"
    REPORT_REFUSED = "report refused"
    ANNOUNCE_STOP = "announce stop"
    NOTE_CAUSE = "note cause"
    KEEP_FROM_RENEWAL = "keep from renewal"
    HURRY = "hurry"
    NEXT_SIGNAL = "next signal"
    SIGKILL = "sigkill"
    SAY_NOTE = "say note"
    SAY_ALIVE = "say alive"
    SAY_TIMED_OUT = "say timed out"
    SAY_OVERFLOWED = "say overflowed"
    NOTE_DRAINED = "note drained"
    NOTE_EXIT = "note exit"
    SET_DEADLINE = "set deadline"
    SET_DEADLINE_NOW = "set deadline now"
    AWAIT_DEADLINE = "await deadline"
    CHECK = "check"
    CHECK_LATER = "check later"
    RETRY_LATER = "retry later"
    SWEEP = "sweep"
    LEAVE = "leave"
    KILL_LEFTOVERS = "kill leftovers"
    GIVE_UP = "give up"
    CLOSE_PIPES = "close pipes"
    SEAL = "seal"
    NOTE_LINES = "note lines"
    REAP = "reap"
    RENEW = "renew"
    REPORT = "report"
    FORGET = "forget"


_S, _E, _A = State, Event, Action

ALIVE = frozenset({_S.RUNNING, _S.STOPPING, _S.KILLED})
"""States in which the main process has not exited, as far as the root knows."""
DRAINS = frozenset({_S.DRAINING, _S.DRAINED, _S.CLOSING, _S.SWEPT, _S.KILLING})
"""States between the exit of the main process and the end of the log."""
OVERDUE = frozenset({_S.KILLED, _S.CLOSING, _S.SWEPT, _S.KILLING})
"""States after the deadline for a voluntary exit."""
CLOSES = frozenset({_S.CLOSING, _S.SWEPT})
"""States in which the root closes the pipes."""

_Outcome = tuple[State, tuple[Action, ...]]

TABLE: dict[tuple[State, Event], _Outcome] = {
    # The start.
    (_S.UNKNOWN, _E.PREPARE): (_S.PREPARED, (_A.PREPARE,)),
    (_S.UNKNOWN, _E.SPAWN): (_S.WAITING, (_A.QUEUE,)),
    (_S.UNKNOWN, _E.UNANNOUNCED): (_S.AWAITED, (_A.ASK,)),
    (_S.UNKNOWN, _E.ACKNOWLEDGED): (_S.UNKNOWN, (_A.FORGET,)),
    (_S.UNKNOWN, _E.REJECTED): (_S.NEVER_STARTED, (_A.REFUSE,)),
    (_S.PREPARED, _E.DROPPED): (_S.UNKNOWN, ()),
    (_S.PREPARED, _E.SPAWN): (_S.WAITING, (_A.QUEUE,)),
    (_S.PREPARED, _E.UNANNOUNCED): (_S.AWAITED, (_A.ASK,)),
    (_S.PREPARED, _E.REJECTED): (_S.NEVER_STARTED, (_A.REFUSE,)),
    # The scheduler sends the whole request, but a stop may arrive before it.
    (_S.AWAITED, _E.SPAWN): (_S.WAITING, (_A.QUEUE,)),
    (_S.AWAITED, _E.REJECTED): (_S.NEVER_STARTED, (_A.REFUSE,)),
    (_S.AWAITED, _E.STOP): (_S.REPORTED, (_A.REPORT_UNSTARTED,)),
    (_S.AWAITED, _E.KILL): (_S.REPORTED, (_A.REPORT_UNSTARTED,)),
    (_S.AWAITED, _E.FORGOTTEN): (_S.UNKNOWN, ()),
    (_S.WAITING, _E.TURN): (_S.STARTING, (_A.START,)),
    (_S.WAITING, _E.STOP): (_S.REPORTED, (_A.REPORT_UNSTARTED,)),
    (_S.WAITING, _E.KILL): (_S.REPORTED, (_A.REPORT_UNSTARTED,)),
    (_S.WAITING, _E.FORGOTTEN): (_S.UNKNOWN, ()),
    # A shortage interrupted the transition to STARTING.
    (_S.WAITING, _E.STARTED): (_S.RUNNING, (_A.ADOPT_START,)),
    (_S.WAITING, _E.REFUSED): (_S.NEVER_STARTED, (_A.REFUSE,)),
    (_S.WAITING, _E.SHORT): (_S.WAITING, (_A.PUT_BACK,)),
    (_S.STARTING, _E.STARTED): (_S.RUNNING, (_A.ADOPT_START,)),
    (_S.STARTING, _E.REFUSED): (_S.NEVER_STARTED, (_A.REFUSE,)),
    (_S.STARTING, _E.SHORT): (_S.WAITING, (_A.PUT_BACK,)),
    (_S.STARTING, _E.STOP): (_S.STARTING, (_A.DEFER_STOP,)),
    (_S.STARTING, _E.KILL): (_S.STARTING, (_A.DEFER_STOP,)),
    (_S.NEVER_STARTED, _E.SEALED): (_S.REPORTED, (_A.REPORT_REFUSED,)),
    # The main process is alive. A stop sends the signals of the ladder one by one, and finally SIGKILL.
    (_S.RUNNING, _E.STOP): (_S.STOPPING, (_A.SAY_NOTE, _A.ANNOUNCE_STOP, _A.NOTE_CAUSE, _A.SET_DEADLINE_NOW, _A.CHECK)),
    (_S.RUNNING, _E.KILL): (_S.STOPPING, (_A.SAY_NOTE, _A.ANNOUNCE_STOP, _A.NOTE_CAUSE, _A.HURRY)),
    (_S.RUNNING, _E.TIMED_OUT): (
        _S.STOPPING,
        (_A.SAY_TIMED_OUT, _A.ANNOUNCE_STOP, _A.NOTE_CAUSE, _A.SET_DEADLINE_NOW, _A.CHECK),
    ),
    (_S.RUNNING, _E.OVERFLOWED): (
        _S.STOPPING,
        (_A.SAY_OVERFLOWED, _A.ANNOUNCE_STOP, _A.NOTE_CAUSE, _A.SET_DEADLINE_NOW, _A.CHECK),
    ),
    (_S.RUNNING, _E.DRAINED): (_S.RUNNING, (_A.NOTE_DRAINED,)),
    (_S.RUNNING, _E.EXITED): (_S.DRAINING, (_A.NOTE_EXIT, _A.SET_DEADLINE, _A.CHECK)),
    (_S.RUNNING, _E.EXITED_DRAINED): (_S.DRAINED, (_A.NOTE_EXIT, _A.SET_DEADLINE, _A.CHECK)),
    (_S.STOPPING, _E.KILL): (_S.STOPPING, (_A.HURRY,)),
    (_S.STOPPING, _E.OVERFLOWED): (_S.STOPPING, (_A.SAY_OVERFLOWED,)),
    (_S.STOPPING, _E.DUE): (_S.STOPPING, (_A.NEXT_SIGNAL,)),
    (_S.STOPPING, _E.LADDER_OVER): (_S.KILLED, (_A.SIGKILL,)),
    (_S.STOPPING, _E.DRAINED): (_S.STOPPING, (_A.NOTE_DRAINED,)),
    # The grace period of a stop is for all processes of the run, so the deadline stays.
    (_S.STOPPING, _E.EXITED): (_S.DRAINING, (_A.NOTE_EXIT, _A.CHECK)),
    (_S.STOPPING, _E.EXITED_DRAINED): (_S.DRAINED, (_A.NOTE_EXIT, _A.CHECK)),
    (_S.KILLED, _E.OVERFLOWED): (_S.KILLED, (_A.SAY_OVERFLOWED,)),
    (_S.KILLED, _E.DUE): (_S.KILLED, (_A.SAY_ALIVE,)),
    (_S.KILLED, _E.DRAINED): (_S.KILLED, (_A.NOTE_DRAINED,)),
    (_S.KILLED, _E.EXITED): (_S.DRAINING, (_A.NOTE_EXIT, _A.SET_DEADLINE_NOW, _A.CHECK)),
    (_S.KILLED, _E.EXITED_DRAINED): (_S.DRAINED, (_A.NOTE_EXIT, _A.SET_DEADLINE_NOW, _A.CHECK)),
    # The main process has exited. Before the deadline, the root waits for the pipes and does not look for leftovers.
    (_S.DRAINING, _E.CHECK): (_S.DRAINING, (_A.AWAIT_DEADLINE,)),
    (_S.DRAINING, _E.DRAINED): (_S.DRAINED, (_A.NOTE_DRAINED, _A.CHECK)),
    (_S.DRAINING, _E.DUE): (_S.DRAINING, (_A.SWEEP,)),
    (_S.DRAINING, _E.NONE_LEFT): (_S.SWEPT, (_A.CLOSE_PIPES,)),
    (_S.DRAINING, _E.UNEXECUTED): (_S.SWEPT, (_A.CLOSE_PIPES,)),
    (_S.DRAINING, _E.LEFT): (_S.CLOSING, (_A.KILL_LEFTOVERS, _A.CLOSE_PIPES, _A.CHECK_LATER)),
    (_S.DRAINING, _E.TO_LEAVE): (_S.SWEPT, (_A.LEAVE, _A.CLOSE_PIPES)),
    (_S.DRAINING, _E.UNKILLABLE): (_S.SWEPT, (_A.GIVE_UP, _A.CLOSE_PIPES)),
    (_S.DRAINING, _E.STOP): (_S.DRAINING, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL)),
    (_S.DRAINING, _E.KILL): (_S.DRAINING, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL, _A.HURRY)),
    (_S.DRAINING, _E.OVERFLOWED): (_S.DRAINING, (_A.NOTE_CAUSE,)),
    (_S.DRAINED, _E.CHECK): (_S.DRAINED, (_A.SWEEP,)),
    (_S.DRAINED, _E.DUE): (_S.KILLING, (_A.SWEEP,)),
    (_S.DRAINED, _E.NONE_LEFT): (_S.SEALING, (_A.SEAL,)),
    (_S.DRAINED, _E.UNEXECUTED): (_S.DRAINED, (_A.REAP,)),
    (_S.DRAINED, _E.REAPED): (_S.STARTING, (_A.RENEW,)),
    (_S.DRAINED, _E.TRACED): (_S.DRAINED, (_A.RETRY_LATER,)),
    (_S.DRAINED, _E.LEFT): (_S.DRAINED, (_A.CHECK_LATER,)),
    # The search for leftovers took so long that they were not even killed yet.
    (_S.DRAINED, _E.UNKILLABLE): (_S.KILLING, (_A.KILL_LEFTOVERS, _A.CHECK_LATER)),
    (_S.DRAINED, _E.TO_LEAVE): (_S.SEALING, (_A.LEAVE, _A.SEAL)),
    (_S.DRAINED, _E.STOP): (_S.DRAINED, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL)),
    (_S.DRAINED, _E.KILL): (_S.DRAINED, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL, _A.HURRY)),
    (_S.DRAINED, _E.OVERFLOWED): (_S.DRAINED, (_A.NOTE_CAUSE,)),
    # After the deadline.
    (_S.CLOSING, _E.CHECK): (_S.CLOSING, (_A.SWEEP,)),
    (_S.CLOSING, _E.DUE): (_S.CLOSING, (_A.SWEEP,)),
    (_S.CLOSING, _E.DRAINED): (_S.KILLING, (_A.NOTE_DRAINED, _A.CHECK)),
    (_S.CLOSING, _E.NONE_LEFT): (_S.SWEPT, ()),
    (_S.CLOSING, _E.UNEXECUTED): (_S.SWEPT, ()),
    (_S.CLOSING, _E.LEFT): (_S.CLOSING, (_A.KILL_LEFTOVERS, _A.CHECK_LATER)),
    (_S.CLOSING, _E.TO_LEAVE): (_S.SWEPT, (_A.LEAVE,)),
    (_S.CLOSING, _E.UNKILLABLE): (_S.SWEPT, (_A.GIVE_UP,)),
    (_S.CLOSING, _E.STOP): (_S.CLOSING, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL)),
    (_S.CLOSING, _E.KILL): (_S.CLOSING, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL)),
    (_S.CLOSING, _E.OVERFLOWED): (_S.CLOSING, (_A.NOTE_CAUSE,)),
    (_S.SWEPT, _E.CHECK): (_S.SWEPT, (_A.SWEEP,)),
    (_S.SWEPT, _E.DUE): (_S.SWEPT, (_A.SWEEP,)),
    (_S.SWEPT, _E.DRAINED): (_S.KILLING, (_A.NOTE_DRAINED, _A.CHECK)),
    (_S.SWEPT, _E.LEFT): (_S.CLOSING, (_A.KILL_LEFTOVERS, _A.CHECK_LATER)),
    (_S.SWEPT, _E.TO_LEAVE): (_S.SWEPT, (_A.LEAVE,)),
    (_S.SWEPT, _E.UNKILLABLE): (_S.SWEPT, (_A.GIVE_UP,)),
    (_S.SWEPT, _E.STOP): (_S.SWEPT, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL)),
    (_S.SWEPT, _E.KILL): (_S.SWEPT, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL)),
    (_S.SWEPT, _E.OVERFLOWED): (_S.SWEPT, (_A.NOTE_CAUSE,)),
    (_S.KILLING, _E.CHECK): (_S.KILLING, (_A.SWEEP,)),
    (_S.KILLING, _E.DUE): (_S.KILLING, (_A.SWEEP,)),
    (_S.KILLING, _E.NONE_LEFT): (_S.SEALING, (_A.SEAL,)),
    (_S.KILLING, _E.UNEXECUTED): (_S.KILLING, (_A.REAP,)),
    (_S.KILLING, _E.REAPED): (_S.STARTING, (_A.RENEW,)),
    (_S.KILLING, _E.TRACED): (_S.KILLING, (_A.RETRY_LATER,)),
    (_S.KILLING, _E.LEFT): (_S.KILLING, (_A.KILL_LEFTOVERS, _A.CHECK_LATER)),
    (_S.KILLING, _E.TO_LEAVE): (_S.SEALING, (_A.LEAVE, _A.SEAL)),
    (_S.KILLING, _E.UNKILLABLE): (_S.SEALING, (_A.GIVE_UP, _A.SEAL)),
    (_S.KILLING, _E.STOP): (_S.KILLING, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL)),
    (_S.KILLING, _E.KILL): (_S.KILLING, (_A.SAY_NOTE, _A.KEEP_FROM_RENEWAL)),
    (_S.KILLING, _E.OVERFLOWED): (_S.KILLING, (_A.NOTE_CAUSE,)),
    # The last lines may still exceed log_max_size.
    (_S.SEALING, _E.OVERFLOWED): (_S.SEALING, (_A.NOTE_CAUSE,)),
    (_S.SEALING, _E.SEALED): (_S.REAPING, (_A.NOTE_LINES, _A.CHECK)),
    (_S.REAPING, _E.OVERFLOWED): (_S.REAPING, (_A.NOTE_CAUSE,)),
    (_S.REAPING, _E.CHECK): (_S.REAPING, (_A.REAP,)),
    (_S.REAPING, _E.DUE): (_S.REAPING, (_A.REAP,)),
    (_S.REAPING, _E.TRACED): (_S.REAPING, (_A.RETRY_LATER,)),
    (_S.REAPING, _E.REAPED): (_S.REPORTED, (_A.REPORT,)),
    (_S.REPORTED, _E.ACKNOWLEDGED): (_S.UNKNOWN, (_A.FORGET,)),
}
"""The transitions; all other pairs change nothing."""


def step(state: State, event: Event) -> _Outcome:
    """Return the next state and the actions; a pair that the table does not list leaves the state as it is."""
    return TABLE.get((state, event), (state, ()))
