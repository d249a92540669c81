"""The table of the life of a process, and the dispatcher that carries out its actions."""

import errno
import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from supervisor.ipc.messages import Message
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.output.pump_thread import Pump
from supervisor.root.process.managed_process import MainProcess, ManagedProcess, ProcessState, state_from
from supervisor.root.process.process_manager import ProcessManager
from supervisor.root.process.process_tree import ProcessTrees
from supervisor.root.process.transitions import ALIVE, CLOSES, DRAINS, OVERDUE, TABLE, Action, Event, State, step
from tests.root.loop.test_control_thread import _Log, records_in, spawn
from tests.stories import Words, pairs, steps_of

WORDS = Words(State, Event, Action)

STARTS = "prepare dropped spawn unannounced rejected turn started refused short forgotten"
"""Events of a start."""
SWEEPS = "none_left unexecuted left to_leave unkillable"
"""Results of a search for leftovers."""
EXITS = "exited exited_drained"
MAIN = f"timed_out ladder_over {EXITS}"
"""Events of a main process that has not exited."""

IGNORED = {
    State.UNKNOWN: f"dropped turn started refused short forgotten stop kill overflowed check due drained"
    f" {MAIN} {SWEEPS} sealed reaped traced",
    State.PREPARED: f"prepare turn started refused short forgotten stop kill overflowed check due drained"
    f" {MAIN} {SWEEPS} sealed reaped traced acknowledged",
    State.AWAITED: f"prepare dropped unannounced turn started refused short overflowed check due drained"
    f" {MAIN} {SWEEPS} sealed reaped traced acknowledged",
    State.WAITING: f"prepare dropped spawn unannounced rejected overflowed check due drained"
    f" {MAIN} {SWEEPS} sealed reaped traced acknowledged",
    State.STARTING: f"prepare dropped spawn unannounced rejected turn forgotten overflowed check due drained"
    f" {MAIN} {SWEEPS} sealed reaped traced acknowledged",
    State.NEVER_STARTED: f"{STARTS} stop kill overflowed check due drained {MAIN} {SWEEPS} reaped traced acknowledged",
    State.RUNNING: f"{STARTS} check due ladder_over {SWEEPS} sealed reaped traced acknowledged",
    State.STOPPING: f"{STARTS} stop timed_out check {SWEEPS} sealed reaped traced acknowledged",
    State.KILLED: f"{STARTS} stop kill timed_out check ladder_over {SWEEPS} sealed reaped traced acknowledged",
    State.DRAINING: f"{STARTS} {MAIN} sealed reaped traced acknowledged",
    State.DRAINED: f"{STARTS} {MAIN} drained sealed acknowledged",
    State.CLOSING: f"{STARTS} {MAIN} sealed reaped traced acknowledged",
    State.SWEPT: f"{STARTS} {MAIN} none_left unexecuted sealed reaped traced acknowledged",
    State.KILLING: f"{STARTS} {MAIN} drained sealed acknowledged",
    State.SEALING: f"{STARTS} stop kill check due drained {MAIN} {SWEEPS} reaped traced acknowledged",
    State.REAPING: f"{STARTS} stop kill drained {MAIN} {SWEEPS} sealed acknowledged",
    State.REPORTED: f"{STARTS} stop kill overflowed check due drained {MAIN} {SWEEPS} sealed reaped traced",
}
"""The events that change nothing in a state and require no action."""

STORIES = {
    "a start and an end": """
        unknown
        spawn: queue -> waiting
        turn: start -> starting
        started: adopt start -> running
        exited: note exit, set deadline, check -> draining
        check: await deadline -> draining
        drained: note drained, check -> drained
        check: sweep -> drained
        none left: seal -> sealing
        sealed: note lines, check -> reaping
        check: reap -> reaping
        reaped: report -> reported
        acknowledged: forget -> unknown
        acknowledged: forget -> unknown
    """,
    "a prepared start": """
        unknown
        prepare: prepare -> prepared
        spawn: queue -> waiting
    """,
    "a preparation that is dropped": """
        unknown
        prepare: prepare -> prepared
        dropped: -> unknown
        prepare: prepare -> prepared
        rejected: refuse -> never started
    """,
    "a start of an unknown announced run": """
        unknown
        unannounced: ask -> awaited
        spawn: queue -> waiting
    """,
    "a start of a run that was announced with another request": """
        prepared
        unannounced: ask -> awaited
        rejected: refuse -> never started
    """,
    "a stop before the whole request arrives": """
        awaited
        stop: report unstarted -> reported
    """,
    "a forced stop before the whole request arrives": """
        awaited
        kill: report unstarted -> reported
    """,
    "a scheduler that is replaced before it sends the whole request": """
        awaited
        forgotten: -> unknown
    """,
    "a start that waits for a resource": """
        waiting
        turn: start -> starting
        short: put back -> waiting
        forgotten: -> unknown
    """,
    "a waiting start is stopped": """
        waiting
        stop: report unstarted -> reported
    """,
    "a waiting start is killed": """
        waiting
        kill: report unstarted -> reported
    """,
    "a shortage interrupts the transition to starting": """
        waiting
        short: put back -> waiting
        started: adopt start -> running
    """,
    "a shortage interrupts the transition of a start that fails": """
        waiting
        refused: refuse -> never started
    """,
    "a stop during the start": """
        starting
        stop: defer stop -> starting
        kill: defer stop -> starting
        refused: refuse -> never started
        sealed: report refused -> reported
    """,
    "the scheduler rejects a start": """
        unknown
        rejected: refuse -> never started
    """,
    "a stop": """
        running
        drained: note drained -> running
        stop: say note, announce stop, note cause, set deadline now, check -> stopping
        due: next signal -> stopping
        overflowed: say overflowed -> stopping
        drained: note drained -> stopping
        kill: hurry -> stopping
        ladder over: sigkill -> killed
        due: say alive -> killed
        overflowed: say overflowed -> killed
        drained: note drained -> killed
        exited drained: note exit, set deadline now, check -> drained
    """,
    "a stop that is obeyed": """
        running
        stop: say note, announce stop, note cause, set deadline now, check -> stopping
        exited: note exit, check -> draining
    """,
    "a stop that is obeyed after the pipes": """
        stopping
        exited drained: note exit, check -> drained
    """,
    "a forced stop": """
        running
        kill: say note, announce stop, note cause, hurry -> stopping
        ladder over: sigkill -> killed
        exited: note exit, set deadline now, check -> draining
        due: sweep -> draining
    """,
    "a time-out": """
        running
        timed out: say timed out, announce stop, note cause, set deadline now, check -> stopping
    """,
    "an overflow": """
        running
        overflowed: say overflowed, announce stop, note cause, set deadline now, check -> stopping
    """,
    "pipes that end before the main process": """
        running
        exited drained: note exit, set deadline, check -> drained
        left: check later -> drained
        due: sweep -> killing
        left: kill leftovers, check later -> killing
        check: sweep -> killing
        due: sweep -> killing
        none left: seal -> sealing
    """,
    "leftovers that hold the pipes": """
        draining
        due: sweep -> draining
        left: kill leftovers, close pipes, check later -> closing
        check: sweep -> closing
        due: sweep -> closing
        left: kill leftovers, check later -> closing
        drained: note drained, check -> killing
    """,
    "leftovers that end before the pipes": """
        draining
        left: kill leftovers, close pipes, check later -> closing
        none left: -> swept
        check: sweep -> swept
        due: sweep -> swept
        left: kill leftovers, check later -> closing
        unexecuted: -> swept
        drained: note drained, check -> killing
    """,
    "pipes that another process holds": """
        draining
        none left: close pipes -> swept
    """,
    "leftovers that the run leaves": """
        drained
        to leave: leave, seal -> sealing
    """,
    "leftovers that the run leaves with its pipes": """
        draining
        to leave: leave, close pipes -> swept
        to leave: leave -> swept
    """,
    "leftovers that the run leaves after a search": """
        closing
        to leave: leave -> swept
    """,
    "leftovers that the run leaves after the deadline": """
        killing
        to leave: leave, seal -> sealing
    """,
    "leftovers that cannot be killed": """
        killing
        unkillable: give up, seal -> sealing
    """,
    "leftovers that cannot be killed and hold the pipes": """
        closing
        unkillable: give up -> swept
        unkillable: give up -> swept
    """,
    "leftovers that are found late": """
        drained
        unkillable: kill leftovers, check later -> killing
    """,
    "a root that hangs": """
        draining
        unkillable: give up, close pipes -> swept
    """,
    "a process that never executed its command": """
        drained
        unexecuted: reap -> drained
        traced: retry later -> drained
        reaped: renew -> starting
    """,
    "a process that never executed its command, after the deadline": """
        draining
        unexecuted: close pipes -> swept
        drained: note drained, check -> killing
        unexecuted: reap -> killing
        traced: retry later -> killing
        reaped: renew -> starting
    """,
    "a tracer": """
        sealing
        overflowed: note cause -> sealing
        sealed: note lines, check -> reaping
        overflowed: note cause -> reaping
        due: reap -> reaping
        traced: retry later -> reaping
    """,
    "stops and overflows while the run drains": """
        draining
        overflowed: note cause -> draining
        stop: say note, keep from renewal -> draining
        kill: say note, keep from renewal, hurry -> draining
    """,
    "stops and overflows after the pipes": """
        drained
        overflowed: note cause -> drained
        stop: say note, keep from renewal -> drained
        kill: say note, keep from renewal, hurry -> drained
    """,
    "stops and overflows while the root closes the pipes": """
        closing
        overflowed: note cause -> closing
        stop: say note, keep from renewal -> closing
        kill: say note, keep from renewal -> closing
    """,
    "stops and overflows after the leftovers": """
        swept
        overflowed: note cause -> swept
        stop: say note, keep from renewal -> swept
        kill: say note, keep from renewal -> swept
    """,
    "stops and overflows while leftovers are killed": """
        killing
        overflowed: note cause -> killing
        stop: say note, keep from renewal -> killing
        kill: say note, keep from renewal -> killing
    """,
}


def events(names: str) -> set[Event]:
    return {Event[name.upper()] for name in names.split()}


@pytest.mark.parametrize("state", list(State))
def test_each_pair_has_a_decision(state: State) -> None:
    """Each event of each state either has an entry in the table or is listed as ignored, never both."""
    decided = {event for from_state, event in TABLE if from_state is state}
    assert decided | events(IGNORED[state]) == set(Event)
    assert not decided & events(IGNORED[state])


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_ignored_event_changes_nothing(state: State, event: Event) -> None:
    """An ignored event leaves the state and requires no action; each other pair does one or the other."""
    assert (step(state, event) == (state, ())) == (event in events(IGNORED[state]))


@pytest.mark.parametrize("story", list(STORIES))
def test_stories(story: str) -> None:
    """Each life goes through the states, and requires the actions, of its story."""
    for state, event, following, actions in steps_of(WORDS, STORIES[story]):
        assert step(state, event) == (following, actions)


def test_each_entry_has_a_story() -> None:
    """Each entry of the table is part of a story."""
    assert pairs(WORDS, STORIES.values()) == set(TABLE)


def test_every_event_and_action_is_used() -> None:
    """Each event and each action occurs in the table."""
    assert {event for _, event in TABLE} == set(Event)
    assert {action for _, actions in TABLE.values() for action in actions} == set(Action)


def reached(start: State, without: State | None = None) -> set[State]:
    reachable = {start}
    while True:
        more = {step(state, event)[0] for state in reachable for event in Event} - {without}
        if more <= reachable:
            return reachable
        reachable |= more


@pytest.mark.parametrize(
    "state", [start_state for start_state in State if start_state not in (State.UNKNOWN, State.PREPARED)]
)
def test_every_life_ends(state: State) -> None:
    """From each state after the request, the report of the end is reachable."""
    assert State.REPORTED in reached(state)


@pytest.mark.parametrize("state", [State.SEALING, State.REAPING])
@pytest.mark.parametrize("start", sorted(ALIVE, key=str))
def test_order_of_an_end(start: State, state: State) -> None:
    """No run whose process has started is reported before its log is sealed and its main process is reaped."""
    lives = reached(start, without=state) - {State.STARTING}
    assert all(step(live, event)[0] is not State.REPORTED for live in lives & (ALIVE | DRAINS) for event in Event)


def test_log_is_sealed_after_pipes_and_leftovers() -> None:
    """The log is sealed only after the pipes have ended and no processes are left, or the run abandons them."""
    sealing = {pair for pair, (_, actions) in TABLE.items() if Action.SEAL in actions}
    over = {Event.NONE_LEFT, Event.TO_LEAVE, Event.UNKILLABLE}
    assert sealing <= set(itertools.product({State.DRAINED, State.KILLING}, over))
    assert all(TABLE[pair][0] is State.SEALING for pair in sealing)


def test_leftovers_are_killed_only_after_the_deadline() -> None:
    """Before the deadline of a run, its leftovers are not killed and its pipes stay open."""
    rough = {Action.KILL_LEFTOVERS, Action.GIVE_UP, Action.CLOSE_PIPES}
    for (state, event), (following, actions) in TABLE.items():
        if rough & set(actions):
            assert following in OVERDUE or following is State.SEALING, (state, event)


def test_known_run_does_not_start_again() -> None:
    """A repeated request changes nothing, whatever the state of the run."""
    for state in set(State) - {State.UNKNOWN, State.PREPARED, State.AWAITED}:
        for event in (Event.PREPARE, Event.SPAWN, Event.UNANNOUNCED, Event.REJECTED):
            assert step(state, event) == (state, ())


def test_each_search_has_a_result() -> None:
    """After each search for leftovers the run continues, is searched again, or waits for the end of its pipes."""
    for following in {following for following, actions in TABLE.values() if Action.SWEEP in actions}:
        for event in events(SWEEPS):
            after, actions = step(following, event)
            goes_on = {Action.CHECK_LATER, Action.SEAL, Action.REAP, Action.CLOSE_PIPES} & set(actions)
            assert goes_on or after is State.SWEPT


def test_groups_of_states() -> None:
    """A main process is alive or its run drains; overdue ones of both were killed or have their pipes closed."""
    assert {State.RUNNING, State.STOPPING, State.KILLED} == ALIVE
    assert {State.DRAINING, State.DRAINED, State.CLOSING, State.SWEPT, State.KILLING} == DRAINS
    assert {State.KILLED, State.CLOSING, State.SWEPT, State.KILLING} == OVERDUE
    assert {State.CLOSING, State.SWEPT} == CLOSES


@pytest.mark.parametrize("state", sorted(ALIVE | DRAINS | {State.SEALING, State.REAPING}, key=str))
def test_state_is_handed_over(state: State) -> None:
    """The next root derives the state of a process from the fields of the handover."""
    process = ManagedProcess(spawn("R"), MainProcess(1, 1, 1, 0.0))
    process.state = state
    next_state = state_from(
        process.phase,
        killed=process.killed,
        closes_early=process.closes_early,
        stopped=state is not State.RUNNING,
        complete=state is State.REAPING,
        drained=state in (State.DRAINED, State.KILLING, State.SEALING, State.REAPING),
    )
    assert next_state is (State.CLOSING if state is State.SWEPT else state)  # the next check sweeps again


def test_recovered_run_waits_for_its_deadline() -> None:
    """A recovered run, whose pipes are drained once more, waits for its deadline again."""
    next_state = state_from(ProcessState.DRAINING, killed=True, closes_early=False, stopped=False, complete=False)
    assert next_state is State.DRAINING


class _Pump:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, *arguments))


class Bench:
    """A process manager with one process, and no threads."""

    def __init__(self, directory: Path) -> None:
        self.frames: list[Message] = []
        self.pump = _Pump()
        trees = ProcessTrees("D", set, print)
        self.manager = ProcessManager(
            "D", EpollWatch(), cast(Pump, self.pump), _Log(), {}, self.frames.append, trees, records_in(directory)
        )
        self.actions: dict[Action, Callable[..., None]] = dict(self.manager._dispatcher._of_processes)
        self.manager._dispatcher._of_processes = self.actions
        self.child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.process = ManagedProcess(spawn("R"), MainProcess(self.child.pid, os.pidfd_open(self.child.pid), 1, 0.0))
        trees.mains[self.child.pid] = self.manager.live["R"] = self.process
        self.manager._watch_process(self.process)

    def exit(self) -> None:
        self.child.kill()
        os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT)
        self.manager._watch.round(None)

    def close(self) -> None:
        self.child.kill()
        if "R" in self.manager.live:
            self.child.wait()
        self.child.returncode = -signal.SIGKILL


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    harness = Bench(tmp_path)
    yield harness
    harness.close()


def test_each_action_has_a_method(bench: Bench) -> None:
    """The dispatcher can carry out each action."""
    of_runs = set(bench.manager._dispatcher._of_runs)
    assert of_runs | set(bench.actions) == set(Action)
    assert not of_runs & set(bench.actions)


def test_end_from_exit_to_report(bench: Bench) -> None:
    """A process that exits is drained, swept, sealed, reaped and reported, in this order."""
    bench.exit()
    assert bench.process.state is State.DRAINING
    bench.manager.pump_reports.at_end("R", silent=False)
    bench.manager.pump_reports.catch_up()
    assert (bench.process.state, bench.pump.calls) == (State.SEALING, [("seal", "R", [])])
    bench.manager.pump_reports.sealed("R", 7)
    bench.manager.pump_reports.catch_up()
    assert [(frame["op"], frame["status"], frame["lines"]) for frame in bench.frames] == [("exited", signal.SIGKILL, 7)]
    assert (bench.manager._dispatcher.state("R"), bench.manager.live) == (State.REPORTED, {})
    bench.manager.acknowledge({"runs": ["R"]})
    assert (bench.manager._dispatcher.state("R"), bench.manager.exits, bench.manager._dispatcher._states) == (
        State.UNKNOWN,
        {},
        {},
    )


def test_end_without_output(bench: Bench) -> None:
    """A run that printed nothing has no log to seal, and is reported at once."""
    bench.manager.pump_reports.at_end("R", silent=True)
    bench.manager.pump_reports.catch_up()
    bench.exit()
    assert bench.pump.calls == [("forget", "R")]
    assert [(frame["op"], "lines" in frame) for frame in bench.frames] == [("exited", False)]


def test_shortage_keeps_the_state(bench: Bench) -> None:
    """A transition that a shortage interrupts is repeated at the next check."""
    bench.exit()
    sweep = bench.actions[Action.SWEEP]

    def short(*_arguments: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    bench.actions[Action.SWEEP] = short
    bench.manager.pump_reports.at_end("R", silent=False)
    with pytest.raises(OSError, match="Too many open files"):
        bench.manager.pump_reports.catch_up()
    states = [bench.process.state]
    bench.actions[Action.SWEEP] = sweep
    bench.manager.check_all_again()
    bench.manager.run_timers(0.0)
    assert [*states, bench.process.state] == [State.DRAINED, State.SEALING]


def test_repeated_stop_signals_once(bench: Bench) -> None:
    """A stop sends the first signal of the ladder and notes its cause; a repeated one does nothing."""
    signals_sent: list[tuple[int, ...]] = []
    bench.manager._trees.signal = lambda _process, *numbers: signals_sent.append(numbers)  # type: ignore[method-assign]
    for by in ("me", "you"):
        bench.manager.stop({"run": "R", "cause": "stop", "by": by, "note": f"asked by {by}"})
    assert (bench.process.state, bench.process.cause, bench.process.by) == (State.STOPPING, "stop", "me")
    assert signals_sent == [(15, signal.SIGCONT)]
    assert bench.pump.calls == [("note", "R", "asked by me")]


def test_unknown_runs_are_ignored(bench: Bench) -> None:
    """A stop, a note or an acknowledgement for an unknown run changes nothing."""
    bench.manager.stop({"run": "X", "cause": "stop"})
    bench.manager.note({"run": "X", "text": "x"})
    bench.manager.acknowledge({"runs": ["X"]})
    assert (bench.manager._dispatcher._states, bench.frames, bench.pump.calls) == ({}, [], [])
