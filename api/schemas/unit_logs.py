"""Events of a stream of the logs of units: runs, lines, gaps and ends."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from api.schemas.records import DateTime, Int64, Reason, StreamName, Ulid

_R = Annotated[Int64, Meta(description="The run, by its number in this stream.", ge=0)]


class UnitRun(Struct, kw_only=True, rename="camel"):
    """A run whose lines follow."""

    r: _R
    run_id: Ulid
    task_name: str
    instance_index: Int64
    attempt: Annotated[Int64, Meta(description="0 for a first attempt, else the number of the retry.")]
    flow_run_id: Annotated[str, Meta(description="The run of the flow that it is part of.")] | UnsetType = UNSET
    step: Annotated[str, Meta(description="Its step in this flow.")] | UnsetType = UNSET
    item: Annotated[str, Meta(description="Its item, if the step has several.")] | UnsetType = UNSET
    started_at: DateTime | UnsetType = UNSET
    first_line: Annotated[Int64, Meta(description="Number of the first line that this stream may send.")]


class UnitLine(Struct, rename="camel"):
    """One line of a run."""

    r: _R
    n: Annotated[Int64, Meta(description="Absolute number within the run's log, from 0.")]
    ts: Annotated[Int64, Meta(description="Unix time, ms.")]
    stream: StreamName
    text: str
    continued: Annotated[bool, Meta(description="True if it continues the stream's previous line.")] | UnsetType = UNSET
    frame_count: Annotated[Int64, Meta(description="Number of kept frames, if it was redrawn.", ge=1)] | UnsetType = (
        UNSET
    )


class UnitEnd(Struct, rename="camel"):
    """A run has ended, and all its lines were sent."""

    r: _R
    end_reason: Reason
    exit_code: Int64
    ended_at: DateTime


class UnitGap(Struct):
    """Lines of a run that are no longer kept, or unreadable."""

    r: _R
    after: Annotated[Int64, Meta(description="Number of the line before the gap; -1 if the gap begins the log.")]
    count: Int64


class UnitDone(Struct):
    """All lines up to `until` were sent."""

    runs: Annotated[Int64, Meta(description="Number of runs that this stream announced.")]
