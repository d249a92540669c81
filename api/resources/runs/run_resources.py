"""Handlers for resource usage: of one run, and of all active runs live."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from api.auth.identity import Role
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import integer
from api.resources.runs.runs import the_run
from api.schemas.run_details import AllResources, Resources, ResourceSample, RunningResources
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store.database import Database
from store.runs import samples as run_samples
from store.runs.samples import Point, Usage
from store.runs.writes import Run, unfinished_runs


def _samples(started_at: int, points: Sequence[Point], most: int | None) -> list[ResourceSample]:
    """Return the newest `most` samples.

    CPU percentages are relative to the previous sample, or to the start of the run.
    """
    found = []
    at, cpu_ms = started_at, 0
    for point in points:
        passed_ms, used_ms = point.at - at, point.cpu_ms - cpu_ms
        at, cpu_ms = point.at, point.cpu_ms
        found.append(
            ResourceSample(
                t=rfc3339(point.at),
                # If the clock was set back, the elapsed time is unknown.
                cpu_percent=round(100 * used_ms / passed_ms, 1) if passed_ms > 0 else UNSET,
                rss_bytes=point.rss_bytes,
                processes=point.processes,
            )
        )
    return found if most is None else found[len(found) - min(most, len(found)) :]


def _most(*values: int | None) -> int | UnsetType:
    """Return the largest known value."""
    return max((value for value in values if value is not None), default=UNSET)


def _ms(us: int | None) -> int | None:
    return None if us is None else us // 1000


def _taken(run: Run, usage: Usage | None, most: int | None = None) -> dict[str, Any]:
    """Return the fields of `Resources`.

    Two sources count the resources of an ended run, and each misses something. The kernel's totals miss processes that
    lost their parent; the samples miss everything after the last one. The larger of the two is closer to the truth.
    """
    if run.started_at is None:
        return {"samples": []}
    if usage is None:
        sums: tuple[int | None, ...] = (None,) * 5
    else:
        sums = (usage.user_ms, usage.system_ms, usage.peak_rss_bytes, usage.read_bytes, usage.written_bytes)
    return {
        "cpu_user_ms": _most(_ms(run.user_us), sums[0]),
        "cpu_system_ms": _most(_ms(run.system_us), sums[1]),
        "max_rss_bytes": _most(run.max_rss_bytes, sums[2]),
        "read_bytes": _most(run.read_bytes, sums[3]),
        "write_bytes": _most(run.write_bytes, sums[4]),
        "samples": [] if usage is None else _samples(run.started_at, usage.points, most),
    }


def measure_run(context: Context, call: Call) -> None:
    """Get the resources of a run: CPU, memory, disk I/O, and samples over time."""
    run = the_run(context, call.path["runId"])
    if run.status == "ended":
        usage = context.reads(run_samples.of_ended, run.id)
    else:
        usage = context.reads(run_samples.of_running, [run.id]).get(run.id)
    call.answer(Resources(**_taken(run, usage)))


def _running(db: Database, sees: Callable[[str], bool]) -> list[tuple[Run, Usage | None]]:
    found = [run for run in unfinished_runs(db) if run.status == "running" and sees(run.task_name)]
    usages = run_samples.of_running(db, [run.id for run in found])
    return [(run, usages.get(run.id)) for run in found]


def list_running_resources(context: Context, call: Call) -> None:
    """Get the resources of all active runs, live."""
    identity = call.identity
    found = context.reads(_running, lambda task: identity is None or identity.sees(task))
    most: int | None = call.query["samples"]
    items = [
        RunningResources(
            run_id=run.id, task_name=run.task_name, instance_index=run.instance_index, **_taken(run, usage, most)
        )
        for run, usage in found
    ]
    call.answer(AllResources(items=items))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/runs/{runId}/resources",
        role=Role.VIEWER,
        handler=measure_run,
        answers={200: json_of(Resources)},
        refusals=(404, 422),
    ),
    Operation(
        method="GET",
        path="/api/resources",
        role=Role.VIEWER,
        scoped=True,
        handler=list_running_resources,
        query=(
            integer(
                "samples", "Maximum number of the newest samples of each run; default: all.", minimum=0, maximum=1000
            ),
        ),
        answers={200: json_of(AllResources)},
        refusals=(422,),
    ),
)
