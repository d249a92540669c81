"""Printing the logs of tasks and services, live or as they stand, over interruptions of the connection.

The API merges the logs of all runs into one stream. Each event has a cursor, with which the next stream resumes behind
the last printed line.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import click

from supervisor.cli.client import Api, Query, Refused
from supervisor.cli.follow import Patience
from supervisor.cli.lookups import find_task, unknown
from supervisor.cli.records import Foreign, Record, parse, parse_list
from supervisor.cli.sse import EventParser
from supervisor.cli.terminal import LogPrinter
from supervisor.config.value_types.durations import parse_duration

_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""SGR foregrounds: cyan, yellow, green, magenta, blue, and the bright ones."""
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Selected:
    """The units on the command line: names and globs, narrowed by group and tag; no names: all."""

    names: tuple[str, ...]
    group: str | None
    tag: str | None

    def query(self) -> dict[str, str | int | None]:
        """Return the parameters that select them."""
        return {"task": ",".join(self.names) or None, "group": self.group, "tag": self.tag}

    @property
    def is_one(self) -> bool:
        """Return whether it is one exact name."""
        return len(self.names) == 1 and not _GLOB.search(self.names[0]) and self.group is None and self.tag is None

    def labels(self, api: Api) -> list[str] | None:
        """Return the labels of all their instances, in order; None: there is only one."""
        if self.is_one:
            task = find_task(api, self.names[0])
            labels = _labels(task) if task is not None else []
            return labels if len(labels) > 1 else None
        units = [task for task in api.get("/api/tasks")["items"] if self._has(task)]
        return [label for task in units for label in _labels(task)]

    def _has(self, task: dict[str, Any]) -> bool:
        named = not self.names or any(fnmatch.fnmatchcase(task["name"], name) for name in self.names)
        in_group = self.group is None or task.get("group") == self.group
        return named and in_group and (self.tag is None or self.tag in task["tags"])

    def refusal(self, api: Api, refused: Refused) -> Exception:
        """Return the failure for a selection that the daemon does not know: it suggests the nearest name."""
        if refused.status == HTTPStatus.NOT_FOUND:
            configured = {task["name"] for task in api.get("/api/tasks")["items"]}
            for name in self.names:
                if not _GLOB.search(name) and name not in configured:
                    return unknown(api, name)
        return refused


def _labels(task: dict[str, Any]) -> list[str]:
    """Return a label for each instance of a unit: its name, with the number of the instance if it has several."""
    count = len(task.get("instances") or ())
    return [f"{task['name']}-{index}" for index in range(count)] if count > 1 else [task["name"]]


class UnitPrinter:
    """Writes lines of several runs, each behind the label of its unit and instance.

    Args:
        printer: writes the lines.
        labels: labels of all instances, in order; None: lines have no label.
        coloured: colour the labels.
    """

    def __init__(self, printer: LogPrinter, labels: Sequence[str] | None, *, coloured: bool) -> None:
        self._printer = printer
        self._labels = None if labels is None else list(labels)
        self._coloured = coloured
        self._width = max(map(len, labels or [""]))
        self._several = {label.rpartition("-")[0] for label in labels or []} - set(labels or [])

    def line(self, run: Record, line: Record) -> None:
        """Write one line of a run."""
        self._printer.line(_json_line(run, line), self._prefix(run))

    def _prefix(self, run: Record) -> str:
        if self._labels is None:
            return ""
        name, index = str(run["taskName"]), int(run["instanceIndex"])
        label = f"{name}-{index}" if index or name in self._several else name
        if label not in self._labels:
            self._labels.append(label)
            self._width = max(self._width, len(label))
        text = f"{label:{self._width}} | "
        if self._coloured:
            return f"\x1b[{_COLOURS[self._labels.index(label) % len(_COLOURS)]}m{text}\x1b[0m"
        return text

    def flush(self) -> None:
        """Hand everything over that was written."""
        self._printer.flush()

    def finish(self) -> None:
        """End lines whose continuation did not come."""
        self._printer.finish()


def _run_of(data: Record, runs: dict[int, Record]) -> Record:
    """Return the run that an event is about."""
    if data["r"] not in runs:
        raise Foreign("an event is about a run that was not announced")
    return runs[data["r"]]


def _json_line(run: Record, line: Record) -> Record:
    """Return a line with its run, as the option --json shows it."""
    of_run = {name: run[name] for name in ("runId", "taskName", "instanceIndex")}
    return Record({**of_run, **{name: value for name, value in line.items() if name != "r"}})


class UnitFollower:
    """Prints the merged log of units until the stream says that there is no more."""

    def __init__(self, api: Api, query: Query, printer: UnitPrinter, patience: Patience) -> None:
        self._api = api
        self._query = query
        self._printer = printer
        self._patience = patience
        self._cursor: str | None = None

    def follow(self) -> None:
        """Print until the stream ends by itself, which it does unless it is to follow.

        Raises:
            Unreachable: the daemon was away for too long.
            Refused: the units do not exist, or a parameter means nothing.
        """
        while not self._patience.insist(self._stream):
            self._patience.lost("the daemon closed the stream")
        self._printer.finish()

    def _stream(self) -> bool:
        """Print the lines of one connection; return whether there will be no more."""
        headers = {"Accept": "text/event-stream"}
        if self._cursor is not None:
            headers["Last-Event-ID"] = self._cursor
        parser = EventParser()
        runs: dict[int, Record] = {}
        with self._api.stream("/api/logs/stream", self._query, headers) as chunks:
            for number, chunk in enumerate(chunks):
                if number:  # the first bytes alone show no daemon that works: they are sent before anything is read
                    self._patience.heard()
                for event in parser.feed(chunk):
                    self._patience.heard()
                    if event.name == "done":
                        return True
                    if event.name == "run":
                        run = parse(event.data)
                        runs[run["r"]] = run
                    elif event.name == "lines":
                        for line in parse_list(event.data):
                            self._printer.line(_run_of(line, runs), line)
                    elif event.name == "gap":
                        gap = parse(event.data)
                        run = _run_of(gap, runs)
                        lines = f"{gap['count']} lines of {run['taskName']} ({run['runId']})"
                        self._patience.say(f"{lines} are no longer kept or unreadable")
                    elif event.name == "end":
                        runs.pop(parse(event.data)["r"], None)
                    self._cursor = event.id or self._cursor
                self._printer.flush()
        return False


def option_moment(text: str | None) -> str | None:
    """Return the RFC 3339 text of an option that takes a time; None: it was not given.

    Raises:
        click.UsageError: it is not a time.
    """
    if text is None:
        return None
    try:
        return moment_of(text, datetime.now(UTC).astimezone())
    except ValueError as err:
        raise click.UsageError(str(err)) from err


def moment_of(text: str, now: datetime) -> str:
    """Return the RFC 3339 text of a time as people write it: ``10m`` (ago), ``14:30``, ``2026-11-20``, ``now``.

    Args:
        text: also a date with a time, or RFC 3339; without an offset it is local.
        now: local, with its offset. A time of day that is still to come today is yesterday's.

    Raises:
        ValueError: it is none of them.
    """
    found = now
    if text != "now":
        time_of_day = _TIME.fullmatch(text)
        try:
            if time_of_day:
                hour, minute, second = (int(part or 0) for part in time_of_day.groups())
                found = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
                found = found - timedelta(days=1) if found > now else found
            elif text[:1].isdigit() and text[-1:].isalpha() and text[-1:] not in "Zz":
                found = now - timedelta(milliseconds=parse_duration(text))
            else:
                found = datetime.fromisoformat(text)
        except (ValueError, OverflowError) as err:
            raise ValueError(
                f'"{text}" is not a time; use 10m (ago), 14:30, 2026-11-20, "2026-11-20 14:30" or RFC 3339'
            ) from err
    if found.tzinfo is None:
        found = found.astimezone()
    return found.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
