"""Prints the logs of tasks and services, live or as far as they exist, across interruptions of the connection.

The API merges the logs of all runs into one stream. Each event has a cursor with which the next stream resumes after
the last printed line.
"""

import queue
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import click

from supervisor.cli.client import Api, Query, segment
from supervisor.cli.daemon_answers import Record, UnexpectedAnswer, parse, parse_list
from supervisor.cli.failure import Failure
from supervisor.cli.follow import Follower, ReconnectDelays
from supervisor.cli.lookups import find_task
from supervisor.cli.sse import EventParser
from supervisor.cli.terminal import LogPrinter, may_colour
from supervisor.cli.units.unit_choice import UnitChoice
from supervisor.config.value_types.durations import parse_duration
from supervisor.ipc.unit_selection import ANY, is_glob

_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""SGR foreground colours: cyan, yellow, green, magenta, blue, and their bright variants."""
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")


def query_of(choice: UnitChoice) -> dict[str, str | int | None]:
    """Return the query parameters that select the units."""
    return {"task": ",".join(choice.names) or None, "group": choice.group, "tag": choice.tag}


def stream_of(choice: UnitChoice) -> tuple[str, dict[str, str | int | None]]:
    """Return the path and the query parameters of the log stream of the units.

    A single unit has a path of its own, which a run's token may read.
    """
    if choice.exact and len(choice.names) == 1:
        return f"/api/tasks/{segment(choice.names[0])}/log/stream", {}
    return "/api/logs/stream", query_of(choice)


def labels_of(choice: UnitChoice, api: Api) -> list[str] | None:
    """Return the labels of all instances of the chosen units, in order; None if there is only one instance."""
    if choice.exact and len(choice.names) == 1:
        task = find_task(api, choice.names[0])
        labels = _labels(task) if task is not None else []
        return labels if len(labels) > 1 else None
    items = api.get("/api/tasks")["items"]
    configured = {item["name"] for item in items}
    names = tuple(name for name in choice.names if is_glob(name) or name in configured)
    if choice.names and not names:  # none of the units is configured any more
        return []
    return [label for task in replace(choice, names=names).among(items, ANY) for label in _labels(task)]


def _labels(task: dict[str, Any]) -> list[str]:
    """Return a label for each instance of a unit: the unit's name, with the instance number if there are several."""
    count = len(task.get("instances") or ())
    return [f"{task['name']}-{index}" for index in range(count)] if count > 1 else [task["name"]]


class UnitPrinter:
    """Writes lines of several runs, each after the label of its unit and instance.

    Args:
        printer: Writes the lines.
        labels: The labels of all instances, in order; None: lines have no labels.
        coloured: Whether labels have colours.
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
        """Flush the printer."""
        self._printer.flush()

    def finish(self) -> None:
        """End all lines that were not continued, and flush."""
        self._printer.finish()


def _run_of(data: Record, runs: dict[int, Record]) -> Record:
    """Return the run to which an event refers.

    Raises:
        UnexpectedAnswer: the stream has not announced the run.
    """
    if data["r"] not in runs:
        raise UnexpectedAnswer("an event is about a run that was not announced")
    return runs[data["r"]]


def _json_line(run: Record, line: Record) -> Record:
    """Return a line with the fields of its run, as the option --json prints it."""
    of_run = {name: run[name] for name in ("runId", "taskName", "instanceIndex")}
    return Record({**of_run, **{name: value for name, value in line.items() if name != "r"}})


class UnitFollower:
    """Prints the merged log of units until the stream ends."""

    def __init__(self, api: Api, path: str, query: Query, printer: UnitPrinter, patience: ReconnectDelays) -> None:
        self._api = api
        self._path = path
        self._query = query
        self._printer = printer
        self._patience = patience
        self._cursor: str | None = None

    def follow(self) -> None:
        """Print lines until the stream reports its end, which never happens if it follows live output.

        Raises:
            Unreachable: the daemon did not answer for a minute.
            ErrorResponse: the units do not exist, or a parameter is invalid.
        """
        while not self._patience.insist(self._stream):
            self._patience.wait_for_retry("the daemon closed the stream")
        self._printer.finish()

    def _stream(self) -> bool:
        """Print the lines of one connection; return whether the stream is complete."""
        headers = {"Accept": "text/event-stream"}
        if self._cursor is not None:
            headers["Last-Event-ID"] = self._cursor
        parser = EventParser()
        runs: dict[int, Record] = {}
        with self._api.stream(self._path, self._query, headers) as chunks:
            for number, chunk in enumerate(chunks):
                if number:  # the first bytes do not prove that the daemon works: they are sent before it reads the logs
                    self._patience.reset()
                for event in parser.feed(chunk):
                    self._patience.reset()
                    if event.name == "done":
                        if (cut := parse(event.data).get("cut")) is not None:
                            self._printer.flush()
                            raise Failure(f"the logs end early: {cut}")
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


def option_moment(option: str, text: str | None) -> str | None:
    """Convert the value of an option to a time in RFC 3339; None if the option was not given.

    Raises:
        click.UsageError: the value is not a time.
    """
    if text is None:
        return None
    try:
        return moment_of(text, datetime.now(UTC).astimezone())
    except ValueError as err:
        raise click.UsageError(f"{option}: {err}") from err


def moment_of(text: str, now: datetime) -> str:
    """Convert a time such as ``10m`` (ago), ``14:30``, ``2026-11-20`` or ``now`` to RFC 3339.

    Args:
        text: The text, which can also be a date with a time, or RFC 3339. Without an offset, it is local time. A time
            of day that is later than now means yesterday.
        now: The present time, with the local offset.

    Raises:
        ValueError: the text is not a time.
    """
    time_of_day = _TIME.fullmatch(text)
    moment = now
    try:
        if time_of_day:
            hour, minute, second = (int(part or 0) for part in time_of_day.groups())
            # Without an offset, because clock changes may be between that time and now.
            moment = now.replace(hour=hour, minute=minute, second=second, microsecond=0, tzinfo=None)
            moment = moment - timedelta(days=1) if moment.astimezone() > now else moment
        elif text[:1].isdigit() and text[-1:].isalpha() and text[-1:] not in "Zz":
            moment = now - timedelta(milliseconds=parse_duration(text))
        elif text != "now":
            moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as err:  # OverflowError: it is before year 1 or after 9999 in UTC
        raise ValueError(
            f'"{text}" is not a time; use 10m (ago), 14:30, 2026-11-20, "2026-11-20 14:30" or RFC 3339'
        ) from err
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _LabelledPrinter(LogPrinter):
    """Writes complete lines after a label. Several printers, in different threads, can write to the same files."""

    def __init__(self, out: BinaryIO, err: BinaryIO, lock: threading.Lock, label: str, *, timestamps: bool) -> None:
        super().__init__(out, err, timestamps=timestamps)
        self._lock = lock
        self._label = label

    def line(self, line: dict[str, object], prefix: str = "") -> None:
        """Write one line while no other printer writes."""
        with self._lock:
            super().line(line, prefix or self._label)

    def lines(self, batch: dict[str, Any]) -> None:
        """Write the lines of a batch."""
        for number, text in enumerate(str(batch["text"]).split("\n"), int(batch["n"])):
            self.line({"n": number, "ts": batch["ts"], "stream": batch["stream"], "text": text})

    def region(self, region: dict[str, object]) -> None:
        """Do nothing: with lines of several runs, no row of the terminal is left for a redrawn line."""

    def flush(self) -> None:
        """Flush both files while no other printer writes."""
        with self._lock:
            super().flush()


def follow_all(api: Api, runs: Mapping[str, str], *, timestamps: bool) -> list[Record]:
    """Print the logs of runs until all runs have ended; return their records.

    Args:
        api: The API.
        runs: The task of each run, by run id.
        timestamps: Whether each line begins with its time.

    Raises:
        Failure: the daemon did not answer for a minute, or the user may not read a log.
    """
    ended: queue.SimpleQueue[Record | Failure] = queue.SimpleQueue()
    lock, width = threading.Lock(), max(map(len, runs.values()), default=0)
    coloured = may_colour(sys.stdout)

    def follow(run_id: str, number: int) -> None:
        label = f"{runs[run_id]:{width}} | "
        if coloured:
            label = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{label}\x1b[0m"
        printer = _LabelledPrinter(sys.stdout.buffer, sys.stderr.buffer, lock, label, timestamps=timestamps)
        patience = ReconnectDelays()
        try:
            Follower(api, run_id, printer, patience).follow()
            ended.put(patience.insist(lambda: api.get(f"/api/runs/{run_id}")))
        except Failure as err:
            ended.put(err)

    for number, run_id in enumerate(runs):
        threading.Thread(target=follow, args=(run_id, number), daemon=True).start()  # Ctrl-C must not wait for them
    records = []
    for _ in runs:
        record = ended.get()
        if isinstance(record, Failure):
            raise record
        records.append(record)
    return records
