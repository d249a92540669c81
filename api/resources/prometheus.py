"""``/metrics`` in the text format of Prometheus, version 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Literal, NamedTuple

import msgspec

from api.auth.identity import Role
from api.host_info.own_processes import named_pids, resident_bytes
from api.operations.operation import Access, Call, Content, Operation
from api.schemas.records import SERVICE_STATES
from api.worker_context import Context
from logring.errors import LogError
from logring.log_paths import ring_path
from logring.reader import LogReader
from store import metrics, notifications, tasks, usage
from store.database import Database
from store.runs import daily_outcomes
from store.runs import writes as runs
from store.runs.usage_counts import ResourceUse
from supervisor.version import VERSION

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})

Kind = Literal["counter", "gauge", "histogram"]


class MetricsText:
    """A document in the text format: metric families in the order in which they were added."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._name = ""

    def family(self, name: str, kind: Kind, help_text: str) -> None:
        """Begin a metric family; the samples that follow belong to it."""
        self._name = name
        self._lines.append(f"# HELP {name} {help_text.translate(_IN_HELP)}")
        self._lines.append(f"# TYPE {name} {kind}")

    def sample(self, value: float, *, suffix: str = "", **labels: str) -> None:
        """Add a sample to the current family; samples of a histogram carry a suffix."""
        pairs = self._pairs(labels)
        self._lines.append(f"{self._name}{suffix}{{{pairs}}} {value!r}" if pairs else f"{self._name}{suffix} {value!r}")

    def histogram(self, within: Iterable[tuple[float, int]], count: int, total: float, **labels: str) -> None:
        """Add the samples of one histogram to the current family.

        Args:
            within: Upper bounds, ascending, each with the number of observations up to it.
            count: Number of all observations.
            total: Sum of all observations.
            labels: Labels other than ``le``; at least one.
        """
        pairs, name = self._pairs(labels), self._name
        prefix = f'{name}_bucket{{{pairs},le="'
        self._lines += [f'{prefix}{bound!r}"}} {n!r}' for bound, n in within]
        self._lines.append(f'{prefix}+Inf"}} {count!r}')
        self._lines.append(f"{name}_sum{{{pairs}}} {total!r}")
        self._lines.append(f"{name}_count{{{pairs}}} {count!r}")

    def _pairs(self, labels: dict[str, str]) -> str:
        return ",".join([f'{name}="{text.translate(_IN_VALUE)}"' for name, text in labels.items()])

    def encode(self) -> bytes:
        """Return the document as bytes."""
        return "\n".join([*self._lines, ""]).encode()


_BLOCK_BYTES = 512
"""Unit of st_blocks, stat(2)."""


class _StoredFigures(NamedTuple):
    records: list[tasks.TaskRecord]
    totals: list[daily_outcomes.Total]
    used: dict[str, ResourceUse]
    """Resources used so far, by task."""
    active: dict[str, tuple[int, int]]
    instances: list[tasks.StoredInstance]
    running: list[tuple[str, str]]
    """Pairs of task and run id of the active runs."""
    unread: int
    newest: metrics.MetricSample | None


def _read_figures(db: Database, sees: Callable[[str], bool]) -> _StoredFigures:
    configured = [record for record in tasks.all_tasks(db) if sees(record.name)]
    flow_of = {record.name: flow for record in configured if (flow := _flow_of(record)) is not None}
    records = [record for record in configured if record.name not in flow_of]
    names = {record.name for record in records}
    return _StoredFigures(
        records=records,
        totals=[total for total in daily_outcomes.totals(db) if total.task_name in names],
        used=_with_steps({name: used for name, used in usage.total_usage(db).items() if sees(name)}, names, flow_of),
        active=tasks.active_counts(db),
        instances=[instance for instance in tasks.instances(db) if instance.task_name in names],
        running=[
            (name, run.id)
            for run in runs.unfinished_runs(db)
            if run.status == "running" and (name := flow_of.get(run.task_name, run.task_name)) in names
        ],
        unread=notifications.unread_count(db),
        newest=metrics.newest(db),
    )


def _flow_of(record: tasks.TaskRecord) -> str | None:
    """Return the flow of which a task is a step; None for other tasks."""
    return msgspec.json.decode(record.definition).get("flow") if '"flow"' in record.definition else None


def _with_steps(used: dict[str, ResourceUse], names: set[str], flow_of: Mapping[str, str]) -> dict[str, ResourceUse]:
    """Return the resources of all tasks, with those of steps added to their flows."""
    sums = {name: use for name, use in used.items() if name in names}
    for step, flow in flow_of.items():
        if step in used and flow in names:
            sums[flow] = sums.get(flow, ResourceUse()).and_also(used[step])
    return sums


def _read_task_metrics(db: Database, sees: Callable[[str], bool]) -> tuple[_StoredFigures, MetricsText]:
    """Read the tables and render their metrics.

    Both happen in the database thread, because rendering takes long with many tasks.
    """
    stored, text = _read_figures(db, sees), MetricsText()
    _add_runs(text, stored)
    _add_tasks(text, stored)
    return stored, text


class _Rings(NamedTuple):
    number: int
    size: int
    """Bytes of shared memory."""
    dropped: Counter[str]
    """Dropped lines by task."""


def _measure_rings(folder: str, running: list[tuple[str, str]]) -> _Rings:
    number = size = 0
    with contextlib.ExitStack() as stack:
        entries: Iterable[os.DirEntry[str]] = ()
        with contextlib.suppress(OSError):  # the directory was removed; the root recreates it
            entries = stack.enter_context(os.scandir(folder))
        for entry in entries:
            if entry.name.endswith(".ring"):
                with contextlib.suppress(FileNotFoundError):  # the run has ended meanwhile
                    size += entry.stat().st_blocks * _BLOCK_BYTES
                    number += 1
    dropped: Counter[str] = Counter()
    for task, run_id in running:
        reader = LogReader(ring_path(folder, run_id), None)
        try:
            dropped[task] += reader.head().dropped
        except (LogError, OSError):
            continue
        finally:
            reader.close()
    return _Rings(number, size, dropped)


@Operation(
    "GET",
    "/metrics",
    answers={200: Content("text/plain", {"type": "string"})},
    access=Access.METRICS,
    role=Role.VIEWER,
    scoped=True,
    tag="system",
)
def get_metrics(context: Context, call: Call) -> None:
    """Get metrics for Prometheus."""
    info = context.scheduler.info(context)
    stored, text = context.reads(_read_task_metrics, call.sees)
    rings = context.in_thread(_measure_rings, context.settings.runtime_dir, stored.running)
    _add_daemon(text, context, scheduler_up=info is not None)
    _add_logs(text, rings)
    # Do not ask a scheduler again that has just failed to answer.
    _add_slots(text, None if info is None else context.scheduler.ask(context, "slots"))
    if call.tasks is None:
        _add_totals(text, rings, stored.unread)
        _add_exports(text, [] if info is None else info.get("exports", []))
    _add_processes(text, context, stored, None if info is None else info.get("pid"))
    call.resp.content_type = MEDIA_TYPE
    call.resp.data = text.encode()


def _add_daemon(text: MetricsText, context: Context, *, scheduler_up: bool) -> None:
    text.family("ringward_build_info", "gauge", "Always 1; the label has the version.")
    text.sample(1, version=VERSION)
    text.family("ringward_start_time_seconds", "gauge", "Start time of the daemon, Unix time.")
    text.sample(context.settings.started_at / 1000)
    text.family("ringward_scheduler_up", "gauge", "1 if the scheduler answers, else 0.")
    text.sample(int(scheduler_up))


def _add_runs(text: MetricsText, stored: _StoredFigures) -> None:
    text.family("ringward_runs_total", "counter", "Ended runs, by task and end reason.")
    for total in stored.totals:
        text.sample(total.n, task=total.task_name, reason=total.reason)
    by_task = [(name, [*totals]) for name, totals in groupby(stored.totals, key=lambda total: total.task_name)]
    text.family("ringward_run_duration_seconds", "histogram", "Duration of ended runs.")
    for name, totals in by_task:
        within = _cumulative(daily_outcomes.LASTED_MS, [total.lasted for total in totals])
        text.histogram(
            within, sum(total.timed for total in totals), sum(total.duration for total in totals) / 1000, task=name
        )
    text.family(
        "ringward_run_start_delay_seconds",
        "histogram",
        "Delay of ended runs from their scheduled time, or from the trigger, to their start.",
    )
    for name, totals in by_task:
        within = _cumulative(daily_outcomes.WAITED_MS, [total.waited_within for total in totals])
        text.histogram(
            within, sum(total.timed for total in totals), sum(total.waited for total in totals) / 1000, task=name
        )
    _add_usage(text, stored)
    for index, state, help_text in (
        (1, "running", "Active runs that have started."),
        (0, "pending", "Runs that are queued or wait for a retry."),
    ):
        text.family(f"ringward_runs_{state}", "gauge", help_text)
        for record in stored.records:
            text.sample(stored.active.get(record.name, (0, 0))[index], task=record.name)


def _cumulative(bounds_ms: tuple[int, ...], counts: list[tuple[int, ...]]) -> Iterator[tuple[float, int]]:
    """Return each bound in seconds with the sum of its counts over all rows."""
    return ((bound / 1000, sum(values)) for bound, values in zip(bounds_ms, zip(*counts, strict=True), strict=True))


def _add_usage(text: MetricsText, stored: _StoredFigures) -> None:
    text.family("ringward_task_cpu_seconds_total", "counter", "CPU time used by runs of the task.")
    for name, used in stored.used.items():
        text.sample(used.user_us / 1_000_000, task=name, mode="user")
        text.sample(used.system_us / 1_000_000, task=name, mode="system")
    for direction, help_text in (("read", "read from disks"), ("write", "wrote to disks")):
        text.family(f"ringward_task_{direction}_bytes_total", "counter", f"Bytes that runs of the task {help_text}.")
        for name, used in stored.used.items():
            value = used.read_bytes if direction == "read" else used.write_bytes
            if value is not None:
                text.sample(value, task=name)


def _add_tasks(text: MetricsText, stored: _StoredFigures) -> None:
    text.family("ringward_task_next_run_timestamp_seconds", "gauge", "Next scheduled run of the task, Unix time.")
    for record in stored.records:
        if record.next_run_at is not None:
            text.sample(record.next_run_at / 1000, task=record.name)
    text.family("ringward_task_last_success_age_seconds", "gauge", "Time since the last successful run of the task.")
    now_ms = time.time_ns() // 1_000_000
    for total in stored.totals:
        if total.reason == "succeeded":
            text.sample(max(0, now_ms - total.last_at) / 1000, task=total.task_name)
    text.family("ringward_task_late", "gauge", "1 while the work of the task is not done by its deadline.")
    for record in stored.records:
        if record.promises is not None:
            text.sample(int(tasks.decode_promises(record.promises).late is not None), task=record.name)
    text.family("ringward_service_instances", "gauge", "Instances of the service in each state.")
    counts = Counter((instance.task_name, instance.state) for instance in stored.instances)
    for record in stored.records:
        if record.kind == "service":
            for state in SERVICE_STATES:
                text.sample(counts[record.name, state], service=record.name, state=state)
    text.family("ringward_service_flapping", "gauge", "1 while an instance of the service fails again and again.")
    for record in stored.records:
        if record.kind == "service":
            text.sample(int(record.flapping_since is not None), service=record.name)


def _add_logs(text: MetricsText, rings: _Rings) -> None:
    text.family("ringward_log_dropped_lines", "gauge", "Dropped log lines of active runs.")
    for task, count in sorted(rings.dropped.items()):
        text.sample(count, task=task)


def _add_totals(text: MetricsText, rings: _Rings, unread: int) -> None:
    """Add the totals over all tasks, which clients limited to some tasks do not get."""
    text.family("ringward_rings", "gauge", "Rings in shared memory, of runs and of the daemon.")
    text.sample(rings.number)
    text.family("ringward_ring_bytes", "gauge", "Shared memory used by rings.")
    text.sample(rings.size)
    text.family("ringward_notifications_unread", "gauge", "Unread notifications.")
    text.sample(unread)


def _add_slots(text: MetricsText, answer: dict[str, Any] | None) -> None:
    for name, help_text in (
        ("size", "Number of places in the slot."),
        ("used", "Places in the slot that runs hold."),
        ("waiting", "Queued runs that need the slot."),
    ):
        text.family(f"ringward_slot_{name}", "gauge", help_text)
        for slot in [] if answer is None else answer["slots"]:
            text.sample(slot[name], slot=slot["name"])


def _add_exports(text: MetricsText, exports: list[dict[str, Any]]) -> None:
    families: tuple[tuple[str, Kind, str, Callable[[dict[str, Any]], float]], ...] = (
        (
            "behind_lines",
            "gauge",
            "Lines that the export has not delivered yet.",
            lambda export: export["behind_lines"],
        ),
        ("delivered_lines_total", "counter", "Lines that the export delivered.", lambda export: export["delivered"]),
        ("skipped_lines_total", "counter", "Lines that were gone before delivery.", lambda export: export["skipped"]),
        (
            "lost_runs_total",
            "counter",
            "Runs that were removed before they could be read.",
            lambda export: export["lost_runs"],
        ),
        ("failing", "gauge", "1 while deliveries of the export fail.", lambda export: int(export["error"] is not None)),
    )
    for name, kind, help_text, value in families:
        text.family(f"ringward_export_{name}", kind, help_text)
        for export in exports:
            text.sample(value(export), export=export["name"])


def _add_processes(text: MetricsText, context: Context, stored: _StoredFigures, scheduler_pid: int | None) -> None:
    text.family("ringward_sse_clients", "gauge", "Open streams of the API worker that answers this request.")
    text.sample(len(context.feeds.streams))
    text.family("ringward_loop_lag_seconds", "gauge", "Latest measured delay of a process's event loop.")
    text.sample(round(context.lag_s, 6), process="worker")
    if stored.newest is not None and stored.newest.lag is not None:
        text.sample(round(stored.newest.lag / 1000, 6), process="scheduler")
    text.family("ringward_process_resident_memory_bytes", "gauge", "Memory of the daemon's own processes, by kind.")
    resident: Counter[str] = Counter()
    for name, pid in named_pids(context.daemon_pid, scheduler_pid):
        resident[name] += resident_bytes(pid) or 0
    for name, size in resident.items():
        text.sample(size, process=name)
