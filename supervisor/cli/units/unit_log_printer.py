"""Prints the logs of tasks and services, live or as far as they exist, across interruptions of the connection.

The API merges the logs of all runs into one stream. Each event has a cursor with which the next stream resumes after
the last printed line.
"""

import queue
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from supervisor.cli.client import Api, Query, segment
from supervisor.cli.daemon_answers import AnswerObject, UnexpectedAnswer, parse, parse_list
from supervisor.cli.failure import Failure
from supervisor.cli.follow import ReconnectDelays, RunFollower
from supervisor.cli.lookups import find_task
from supervisor.cli.sse import EventParser
from supervisor.cli.terminal import LogPrinter, may_colour
from supervisor.cli.units.unit_choice import UnitChoice
from supervisor.ipc.unit_selection import ANY, is_glob

_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""SGR foreground colours: cyan, yellow, green, magenta, blue, and their bright variants."""


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
        if task is not None and "steps" in task:
            return labels_of_steps(task)
        return labels if len(labels) > 1 else None
    items = api.get("/api/tasks")["items"]
    configured = {item["name"] for item in items}
    names = tuple(name for name in choice.names if is_glob(name) or name in configured)
    if choice.names and not names:  # none of the units is configured any more
        return []
    return [label for task in replace(choice, names=names).among(items, ANY) for label in _labels(task)]


def labels_of_steps(flow: AnswerObject) -> list[str]:
    """Return the labels of the steps of a flow."""
    return [str(step["name"]) for step in flow["steps"]]


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
        by_step: Whether runs of a flow have the names of their steps as labels.
    """

    def __init__(
        self, printer: LogPrinter, labels: Sequence[str] | None, *, coloured: bool, by_step: bool = False
    ) -> None:
        self._printer = printer
        self._by_step = by_step
        self._labels = None if labels is None else list(labels)
        self._coloured = coloured
        self._width = max(map(len, labels or [""]))
        self._several = {label.rpartition("-")[0] for label in labels or []} - set(labels or [])

    def line(self, run: AnswerObject, line: AnswerObject) -> None:
        """Write one line of a run."""
        self._printer.line(_json_line(run, line), self._prefix(run))

    def _prefix(self, run: AnswerObject) -> str:
        if self._labels is None:
            return ""
        name, index = str(run["taskName"]), int(run["instanceIndex"])
        label = f"{name}-{index}" if index or name in self._several else name
        if self._by_step and "step" in run:
            label = f"{run['step']}[{run['item']}]" if "item" in run else str(run["step"])
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


def _run_of(data: AnswerObject, runs: dict[int, AnswerObject]) -> AnswerObject:
    """Return the run to which an event refers.

    Raises:
        UnexpectedAnswer: the stream has not announced the run.
    """
    if data["r"] not in runs:
        raise UnexpectedAnswer("an event is about a run that was not announced")
    return runs[data["r"]]


def _json_line(run: AnswerObject, line: AnswerObject) -> AnswerObject:
    """Return a line with the fields of its run, as the option --json prints it."""
    of_run = {name: run[name] for name in ("runId", "taskName", "instanceIndex")}
    return AnswerObject({**of_run, **{name: value for name, value in line.items() if name != "r"}})


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
        runs: dict[int, AnswerObject] = {}
        with self._api.stream(self._path, self._query, headers) as chunks:
            for number, chunk in enumerate(chunks):
                if number:  # the first bytes do not prove that the daemon works: they are sent before it reads the logs
                    self._patience.reset()
                for event in parser.feed(chunk):
                    self._patience.reset()
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


def follow_all(
    api: Api, runs: Mapping[str, str], *, timestamps: bool, flows: Collection[str] = ()
) -> list[AnswerObject]:
    """Print the logs of runs until all runs have ended; return their records.

    Args:
        api: The API.
        runs: The task of each run, by run id.
        timestamps: Whether each line begins with its time.
        flows: The tasks that are flows, whose steps print the lines.

    Raises:
        Failure: the daemon did not answer for a minute, or the user may not read a log.
    """
    ended: queue.SimpleQueue[AnswerObject | Failure] = queue.SimpleQueue()
    lock, width = threading.Lock(), max(map(len, runs.values()), default=0)
    coloured = may_colour(sys.stdout)

    def follow(run_id: str, number: int) -> None:
        label = f"{runs[run_id]:{width}} | "
        if coloured:
            label = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{label}\x1b[0m"
        printer = _LabelledPrinter(sys.stdout.buffer, sys.stderr.buffer, lock, label, timestamps=timestamps)
        patience = ReconnectDelays()
        try:
            if runs[run_id] in flows:
                query: Query = {"flow_run_id": run_id, "from": 0}
                UnitFollower(
                    api, "/api/logs/stream", query, UnitPrinter(printer, None, coloured=False), patience
                ).follow()
            else:
                RunFollower(api, run_id, printer, patience).follow()
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
