"""Waits until units reach a wanted state, and finds out why they did not reach it."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from supervisor.cli.client import Api, ErrorResponse, Unreachable
from supervisor.cli.daemon_answers import AnswerObject
from supervisor.cli.failure import say
from supervisor.cli.follow import ReconnectDelays
from supervisor.cli.lookups import UnknownName, find_task, runs_of
from supervisor.cli.terminal import harmless

ALIVE_S = 1.0
"""Without a readiness probe, an instance has started after its process has lived for this time."""
_ALLOWANCE_S = 10.0
"""Additional time beyond the limits of the definition, for a busy host."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_ONE_BY_ONE = 8
"""Up to this number of units, each is requested separately instead of requesting the list of all units."""
_TAIL_LINES = 10
_STOPPED_ANYWAY = ("stopped", "exited")


@dataclass(frozen=True)
class WaitProgress:
    """The progress of a unit towards its wanted state; `text` describes the present state."""

    text: str
    reached: bool = False
    failed: bool = False


@dataclass(eq=False)
class AwaitedState:
    """A unit and the state for which to wait.

    Attributes:
        name: The name of the unit.
        state: ``running``, ``ready``, ``stopped``, ``idle``, or ``ended``, which means that the runs `leaving` have
            ended.
        leaving: The ids of the runs that must end.
        at_once: Whether the first failure ends the wait, as after a start; otherwise only a final failure does.
        limit_s: The time limit of the wait in seconds; None: no limit.
    """

    name: str
    state: str
    leaving: frozenset[str] = frozenset()
    at_once: bool = False
    limit_s: float | None = None
    _lives: dict[int, tuple[str, float]] = field(default_factory=dict)
    """The run that was seen first, and when, by instance number."""

    def standing_of(self, unit: AnswerObject | None, active: Callable[[], Iterable[str]], now_s: float) -> WaitProgress:
        """Return the present progress of the unit.

        Args:
            unit: The record of the unit; None: it is not configured.
            active: Returns the ids of the unit's runs that have not ended.
            now_s: The monotonic time in seconds.
        """
        if self.state == "ended":
            remaining = self.leaving.intersection(active())
            return (
                WaitProgress("ended", reached=True)
                if not remaining
                else WaitProgress(f"{_runs(len(remaining))} to end")
            )
        if unit is None:
            return WaitProgress("no longer configured", reached=self.state in ("stopped", "idle"), failed=True)
        busy = unit["active"]["running"] + unit["active"]["pending"]
        if self.state == "idle" or (self.state == "stopped" and unit["kind"] == "task"):
            return WaitProgress("idle", reached=True) if not busy else WaitProgress(f"{_runs(busy)} to end")
        if unit["kind"] == "task":
            return WaitProgress(
                "running" if unit["active"]["running"] else "idle", reached=unit["active"]["running"] > 0
            )
        if self.state == "stopped":
            return WaitProgress(str(unit["state"]), reached=unit["state"] == "stopped")
        return self._is_up(unit, now_s)

    def _is_up(self, unit: AnswerObject, now_s: float) -> WaitProgress:
        instances = unit["instances"]
        reached = [
            self._has_done_its_work(unit, instance) or self._instance_is_up(unit, instance, now_s)
            for instance in instances
        ]
        for instance in instances:
            if not self._has_done_its_work(unit, instance) and (reason := self._why_failed(instance)):
                return WaitProgress(reason, failed=True)
        if rolling := unit.get("rolling"):
            return WaitProgress(f"{unit['state']} (rolling {rolling['done']}/{rolling['total']})")
        if reason := self._why_not_replaced(unit):
            return WaitProgress(reason, failed=True)
        detail = next(
            (
                f" ({instance['detail']})"
                for instance in instances
                if instance.get("detail") and not instance.get("ready")
            ),
            "",
        )
        if unit["state"] == "running" and not all(reached) and self._lives and not unit["definition"].get("ready"):
            detail = f" for less than {ALIVE_S:g} s"
        return WaitProgress(f"{unit['state']}{detail}", reached=bool(instances) and all(reached))

    def _has_done_its_work(self, unit: AnswerObject, instance: AnswerObject) -> bool:
        """Return whether an instance that is not restarted has exited successfully since it was started."""
        last = unit.get("lastRun") or {}
        return self.at_once and instance["state"] == "exited" and last.get("endReason") == "succeeded"

    def _instance_is_up(self, unit: AnswerObject, instance: AnswerObject, now_s: float) -> bool:
        run_id, index = instance.get("runId"), int(instance["index"])
        lives = run_id is not None and run_id not in self.leaving and instance["state"] in ("starting", "running")
        if not lives:
            return False
        first, since_s = self._lives.setdefault(index, (run_id, now_s))
        if first != run_id and not self.at_once:
            self._lives[index] = run_id, now_s
            return False
        checked = self.state == "ready" and bool(unit["definition"].get("ready"))
        return bool(instance.get("ready")) or (not checked and now_s - since_s >= ALIVE_S)

    def _why_not_replaced(self, unit: AnswerObject) -> str | None:
        """Return why a present run goes on although its next one has ended; None while that is not so."""
        if not self.at_once or unit["definition"].get("restartOrder") != "new_first":
            return None
        if unit["active"]["running"] + unit["active"]["pending"] > len(unit["instances"]):
            return None
        going_on = [instance for instance in unit["instances"] if instance.get("runId") in self.leaving]
        return going_on[0].get("detail") or "the previous process continues" if going_on else None

    def _why_failed(self, instance: AnswerObject) -> str | None:
        state, index = str(instance["state"]), int(instance["index"])
        if state == "fatal":
            return f"gave up after {instance.get('failures', 0)} quick failures"
        if not self.at_once:
            return None
        first = self._lives.get(index, (None, 0.0))[0]
        again = first is not None and instance.get("runId") not in (None, first)
        if state == "backoff" or again:
            return "another attempt follows"
        return state if state in _STOPPED_ANYWAY else None


@dataclass(frozen=True)
class FailedWait:
    """A unit that did not reach its wanted state, with the reason and the last lines of its log."""

    name: str
    reason: str
    lines: tuple[str, ...] = ()

    def print_to_stderr(self, failure: str) -> None:
        """Print the failure `failure`, such as "did not start", the reason and the lines to standard error."""
        say(f"{self.name} {failure}: {harmless(self.reason)}")
        for line in self.lines:
            print(f"  | {harmless(line)}", file=sys.stderr)


class LiveLines:
    """Shows one line for each unit on standard error, redrawn on changes, if standard error is a terminal."""

    def __init__(self) -> None:
        self._file = sys.stderr
        self._enabled = self._file.isatty()
        self._drawn: list[str] = []

    def show(self, standings: "Mapping[AwaitedState, WaitProgress]") -> None:
        """Draw the lines. If they do not fit on the terminal, draw only lines of unfinished units."""
        if not self._enabled:
            return
        import shutil

        size = shutil.get_terminal_size()
        shown = [(awaited.name, standing) for awaited, standing in standings.items()]
        if len(shown) > size.lines - 2:
            shown = [(name, standing) for name, standing in shown if not standing.reached][: max(size.lines - 2, 1)]
        width = max((len(name) for name, _ in shown), default=0)
        lines = [f"{name:<{width}}  {harmless(standing.text)}"[: size.columns - 1] for name, standing in shown]
        if lines == self._drawn:
            return
        self.clear()
        self._file.write("".join(f"{line}\n" for line in lines))
        self._file.flush()
        self._drawn = lines

    def clear(self) -> None:
        """Remove the lines."""
        if self._drawn:
            self._file.write(f"\x1b[{len(self._drawn)}F\x1b[J")
            self._file.flush()
            self._drawn = []


def wait_for(api: Api, targets: Sequence[AwaitedState], timeout_s: float | None) -> list[FailedWait]:
    """Wait until each unit reaches its wanted state, fails or times out; return the units that missed their state.

    Args:
        api: The API.
        targets: The units and their wanted states.
        timeout_s: One time limit for all units; None: each unit has its own.

    Raises:
        Unreachable: the daemon did not answer for a minute.
    """
    patience, lines, began_s, pause_s = ReconnectDelays(), LiveLines(), time.monotonic(), _FIRST_PAUSE_S
    waiting, missed, standings = list(targets), list[FailedWait](), dict[AwaitedState, WaitProgress]()
    try:
        while waiting:
            now_s = time.monotonic()
            progress = patience.insist(partial(_progress, api, tuple(waiting), now_s))
            patience.reset()
            standings |= progress
            for awaited in list(waiting):
                standing = progress[awaited]
                limit_s = awaited.limit_s if timeout_s is None else timeout_s
                late = limit_s is not None and now_s - began_s >= limit_s
                if standing.reached or standing.failed or late:
                    waiting.remove(awaited)
                if not standing.reached and (standing.failed or late):
                    reason = standing.text if standing.failed else f"timed out after {limit_s:g} s; {standing.text}"
                    missed.append(_missed(api, awaited, reason, failed=standing.failed))
            lines.show(standings)
            if waiting:
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    finally:
        lines.clear()
    return missed


def _progress(api: Api, waiting: Sequence[AwaitedState], now_s: float) -> dict[AwaitedState, WaitProgress]:
    names = [state.name for state in waiting if state.state != "ended"]
    units = records(api, names)

    def active(name: str) -> list[str]:
        try:
            return [str(run["id"]) for run in runs_of(api, name, status="pending,running")]
        except UnknownName:  # the unit is not configured and has no runs
            return []

    return {state: state.standing_of(units.get(state.name), partial(active, state.name), now_s) for state in waiting}


def records(api: Api, names: Sequence[str]) -> dict[str, AnswerObject]:
    """Return the records of the configured units among `names`, by name."""
    if len(names) > _ONE_BY_ONE:
        with suppress(ErrorResponse):  # the token of a run does not permit listing all units
            requested = set(names)
            return {item["name"]: item for item in api.get("/api/tasks")["items"] if item["name"] in requested}
    units = {name: find_task(api, name) for name in names}
    return {name: unit for name, unit in units.items() if unit is not None}


def _missed(api: Api, awaited: AwaitedState, reason: str, *, failed: bool) -> FailedWait:
    """Return the failure with the outcome of the newest run and the last lines of its log.

    If a start failed, the run that has ended shows why. If a start timed out, the active run does, if there is one,
    because an ended run belongs to an earlier start.
    """
    with suppress(UnknownName, ErrorResponse, Unreachable):
        status = None if not awaited.at_once else "ended" if failed else "pending,running"
        run = next(runs_of(api, awaited.name, status=status, limit=1), None)
        if run is not None and awaited.state in ("running", "ready") and run["id"] not in awaited.leaving:
            if run["status"] == "ended":
                ending = api.get(f"/api/runs/{run['id']}/ending")
                lines = ending["lastLines"]
                reason = f"{_how_ended(ending)}; {reason}"
            else:
                lines = api.get(f"/api/runs/{run['id']}/log", {"from": -_TAIL_LINES})["lines"]
            return FailedWait(awaited.name, reason, tuple(str(line["text"]) for line in lines[-_TAIL_LINES:]))
    return FailedWait(awaited.name, reason)


def _how_ended(ending: AnswerObject) -> str:
    reason, code = str(ending["reason"]), int(ending["exitCode"])
    if signal := ending.get("signal"):
        return f"its process was ended by {signal}"
    if reason == "start_failed":
        return "its command could not start"
    return f"its process exited with code {code}" if code >= 0 else f"its last run ended: {reason}"


def _runs(count: int) -> str:
    return "waits for 1 run" if count == 1 else f"waits for {count} runs"


# Time limits, from the definitions.


def start_limits(api: Api, units: Mapping[str, AnswerObject], *, rolling: bool = False) -> dict[str, float | None]:
    """Return the time limit for the start or restart of each unit in seconds, including that of its dependencies."""
    by_name: dict[str, AnswerObject | None] = dict(units)
    limits_s: dict[str, float | None] = {}

    def limit(name: str) -> float | None:
        """Return the limit; None for a task, or for a unit that the user may not see, because its time is unknown."""
        if name not in by_name:
            by_name[name] = _visible(api, name)
        unit = by_name[name]
        if unit is None or unit["kind"] == "task":
            return None
        if name not in limits_s:
            ready = unit["definition"].get("ready")
            own = grace_s(unit) + (int(ready["timeoutMs"]) / 1000 if isinstance(ready, AnswerObject) else ALIVE_S)
            below = [limit(dependency["name"]) for dependency in unit["definition"].get("dependsOn") or ()]
            first = max((limit_s for limit_s in below if limit_s is not None), default=_ALLOWANCE_S)
            limits_s[name] = None if None in below else own * (len(unit["instances"]) if rolling else 1) + first
        return limits_s[name]

    return {name: limit(name) for name in units}


def _visible(api: Api, name: str) -> AnswerObject | None:
    try:
        return find_task(api, name)
    except ErrorResponse:
        return None


def stop_limit(units: Mapping[str, AnswerObject]) -> float:
    """Return the time limit for stopping all these units in seconds. Services can stop one after the other."""
    services = [grace_s(unit) for unit in units.values() if unit["kind"] == "service"]
    tasks = [grace_s(unit) for unit in units.values() if unit["kind"] == "task"]
    return max(sum(services), max(tasks, default=0.0)) + _ALLOWANCE_S


def grace_s(unit: AnswerObject) -> float:
    """Return how many seconds a unit's process has to end before it is killed."""
    definition: dict[str, Any] = unit["definition"]
    steps = definition.get("stopSignal")
    ladder = sum(wait_ms for _signal, wait_ms in steps) if isinstance(steps, list) else 0
    return (int(definition.get("gracefulStopMs", 0)) + ladder) / 1000


def seconds(text: str | None) -> float | None:
    """Convert the option --timeout, a duration such as 30s, to seconds; None if it was not given.

    Raises:
        click.UsageError: the value is not a duration.
    """
    import click

    from supervisor.config.value_types.durations import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text) / 1000
    except ValueError as err:
        raise click.UsageError(f'--timeout must be a duration such as "30s": {text!r}') from err
