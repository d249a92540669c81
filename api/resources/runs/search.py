"""Handlers for searches in the logs of a task's runs, and in all logs.

A search visits runs from the newest to the oldest, and each log from its first line. A call ends at its limit of lines,
time or bytes. Its response has the hits so far and a cursor, with which the next call continues. The cursor is only
valid for the same search. It contains the whole position, so it survives a restart of the server, and a run that was
deleted meanwhile is skipped. Runs that start after the first call are newer than the position and are not visited.

    cursor = base64url(version u8 | creation of the run, ms i64 | run id 26s | line u64 | check 8s)

One dedicated thread scans; concurrent searches share it in turns.
"""

import base64
import binascii
import hashlib
import logging
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from api.auth.identity import Role
from api.errors import ApiError, invalid
from api.operations.operation import Call, Operation, json_of
from api.operations.parameters import INT64_MAX, RUN_ID, QueryParameter, choice, flag, instant, integer, shaped
from api.operations.unit_selector import UNIT_PARAMS, Units, units_of
from api.resources.runs.runs import unit_exists
from api.schemas import records as schemas
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from logring.errors import LogError
from logring.layout import STREAM_NAMES
from logring.log_search import BadPattern, Hit, LineSelection, Pattern, SearchLimits, SearchResult
from logring.log_search import search as search_log
from logring.reader import LogReader
from store.database import Database
from store.runs import runs_by_unit
from store.runs import writes as store_runs
from store.runs.filter import task_names
from store.runs.runs_by_unit import RunScope
from store.runs.writes import Run

log = logging.getLogger("gunicorn.error")

_CALL_S = 1.0
_CALL_BYTES = 1 << 30
_TURN_S = 0.05
_STEP_BYTES = 1 << 20
"""Bytes to scan between two checks of the limits."""
_ANSWER_BYTES = 4 << 20
"""Size of hits in bytes at which a response is full; a line can have 16 KiB."""
_RUNS = 100
_MAX_PATTERN = 1000

_CURSOR = struct.Struct("<Bq26sQ8s")
_CURSOR_VERSION = 1
_CURSOR_CHARACTERS = 68
_CHECK_KEY = b"ringward search"


class Position(NamedTuple):
    """The position at which a search continues: a line of a run, or the next older run if it was removed."""

    created_at: int
    run_id: str
    line: int


_NEWEST = Position(INT64_MAX, "~", 0)  # sorts after every id


def _check(search: tuple[object, ...], packed: bytes) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(search) + packed, digest_size=8, key=_CHECK_KEY).digest()


def _to_cursor(search: tuple[object, ...], position: Position) -> str:
    packed = _CURSOR.pack(_CURSOR_VERSION, position.created_at, position.run_id.encode(), position.line, bytes(8))[:-8]
    return base64.urlsafe_b64encode(packed + _check(search, packed)).decode()


def _from_cursor(search: tuple[object, ...], text: str) -> Position:
    """Return the position in a cursor of this search.

    Raises:
        ValueError: not a cursor, or a cursor of another search.
    """
    if len(text) != _CURSOR_CHARACTERS:
        raise ValueError("is not a cursor")
    try:
        packed = base64.b64decode(text.encode(), b"-_", validate=True)
        version, created_at, run_id, line, check = _CURSOR.unpack(packed)
    except (UnicodeEncodeError, binascii.Error, struct.error) as err:  # struct.error: padding makes it too short
        raise ValueError("is not a cursor") from err
    if version != _CURSOR_VERSION or check != _check(search, packed[:-8]):
        raise ValueError("is not a cursor of this search")
    return Position(created_at, run_id.decode(), line)


class _Scan:
    """The state of one call: the runs still to scan, the hits, and the amounts scanned.

    `turn` is called in the scanning thread.
    """

    def __init__(
        self, pattern: Pattern, selection: LineSelection, limit: int, paths: Callable[[Run], tuple[str, str]], line: int
    ) -> None:
        self.waiting: deque[Run] = deque()
        self.hits: list[tuple[Run, Hit]] = []
        self.line = line
        self.runs = self.bytes = 0
        self._pattern = pattern
        self._selection = selection
        self._limit = limit
        self._paths = paths
        self._text_bytes = 0
        self._reader: LogReader | None = None

    @property
    def full(self) -> bool:
        """Whether a limit of hits or bytes is reached."""
        return len(self.hits) >= self._limit or self._text_bytes >= _ANSWER_BYTES or self.bytes >= _CALL_BYTES

    def cursor(self, search: tuple[object, ...]) -> str | UnsetType:
        """Return the cursor that continues this search; UNSET if all runs are scanned."""
        if not self.waiting:
            return UNSET
        return _to_cursor(search, Position(self.waiting[0].created_at, self.waiting[0].id, self.line))

    def turn(self) -> None:
        """Scan for one turn, about 50 ms."""
        until_s = time.monotonic() + _TURN_S
        while self.waiting and not self.full and time.monotonic() < until_s:
            self._step(until_s)

    def _step(self, until_s: float) -> None:
        """Scan part of the first waiting run's log."""
        run = self.waiting[0]
        if self._reader is None:
            self._reader = LogReader(*self._paths(run))
            self.runs += 1
        try:
            result = search_log(
                self._reader,
                self._pattern,
                self.line,
                limits=SearchLimits(self._limit - len(self.hits), _STEP_BYTES, until_s),
                selection=self._selection,
            )
        except (LogError, OSError) as err:
            log.warning("a search skips the log of %s, which cannot be read: %s", run.id, err)
            result = SearchResult([], self.line, exhausted=True, scanned=0, damaged=0)
        if result.damaged:
            log.warning("a search skips %d damaged blocks of the log of %s", result.damaged, run.id)
        self.hits += [(run, hit) for hit in result.hits]
        self._text_bytes += sum(len(hit.text) for hit in result.hits)
        self.bytes += result.scanned
        self.line = result.next
        if result.exhausted:
            self.close()
            self.waiting.popleft()
            self.line = 0

    def close(self) -> None:
        """Close the current log."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _SearchedRuns:
    """The runs to search, newest first, in batches.

    Args:
        read: returns runs from a creation time and id on, newest first.
        position: the first position.
    """

    def __init__(self, read: Callable[[int, str], list[Run]], position: Position) -> None:
        self._read = read
        self._position = position
        self._ended = False
        self._seen = ""

    def next_batch(self) -> list[Run]:
        """Return the next batch; empty at the end."""
        if self._ended:
            return []
        batch = self._read(self._position.created_at, self._position.run_id)
        self._ended = len(batch) < _RUNS
        if batch:
            self._position = Position(batch[-1].created_at, batch[-1].id, 0)
        if batch and batch[0].id == self._seen:
            del batch[0]
        self._seen = self._position.run_id
        return batch


def _query_text(value: str) -> str:
    if len(value) > _MAX_PATTERN:
        raise ValueError(f"has more than {_MAX_PATTERN} characters")
    return value


_WHAT = (
    QueryParameter(
        "q",
        _query_text,
        {"type": "string", "minLength": 1, "maxLength": _MAX_PATTERN},
        description="The text or pattern to find within a line.",
        required=True,
    ),
    flag("regex", "Whether q is a regular expression, in RE2 syntax; default: false."),
    flag("case", "Whether the search is case-sensitive; default: false."),
    flag("raw", "Whether to search the bytes of a line, not the line as it is displayed; default: false."),
    choice("stream", "Only lines of this stream.", STREAM_NAMES),
    instant("since", "Only lines read at this time or later.", up=True),
    instant("until", "Only lines read at this time or earlier.", up=False),
)

_HOW_MUCH = (
    integer("limit", "Maximum number of lines.", 200, minimum=1, maximum=1000),
    QueryParameter(
        "cursor",
        str,
        {"type": "string", "maxLength": _CURSOR_CHARACTERS},
        description="nextCursor of the previous response, to continue the same search.",
    ),
)


@Operation(
    "GET",
    "/api/tasks/{taskName}/log/search",
    role=Role.VIEWER,
    query=(*_WHAT, shaped("runId", "Only this run.", RUN_ID), *_HOW_MUCH),
    answers={200: json_of(schemas.SearchPage)},
    refusals=(404,),
    tag="logs",
)
def search_task_log(context: Context, call: Call) -> None:
    """Search the logs of a task's runs, newest run first."""
    task, query = call.path["taskName"], call.query
    run_id: str | None = query["runId"]
    same: tuple[object, ...] = (task, query["q"], bool(query["regex"]), bool(query["case"]), query["stream"], run_id)
    if query["since"] is not None or query["until"] is not None:
        same += (query["since"], query["until"])
    if query["raw"]:
        same += ("raw",)
    position = _position(same, query["cursor"])

    def read(created_at: int, at: str) -> list[Run]:
        if run_id is not None:
            return [_run_of(context, task, run_id)]
        runs = context.reads(store_runs.runs_from, task, created_at, at, _RUNS)
        if not runs and position is _NEWEST and not context.reads(unit_exists, task):
            raise ApiError(404, f'No task named "{task}", and no runs of one')
        return runs

    scan = _scanned(context, call, read, position)
    call.answer(
        schemas.SearchPage(
            items=[
                schemas.SearchHit(run_id=run.id, n=hit.n, ts=hit.ts, stream=STREAM_NAMES[hit.stream], text=_text(hit))
                for run, hit in scan.hits
            ],
            next_cursor=scan.cursor(same),
            exhausted=not scan.waiting,
            scanned_runs=scan.runs,
            scanned_bytes=scan.bytes,
        )
    )


def _run_of(context: Context, task: str, run_id: str) -> Run:
    """Return a run of a task.

    Raises:
        ApiError: 404 the task has no such run.
    """
    run = context.reads(store_runs.get_run, run_id)
    if run is None or run.task_name != task:
        raise ApiError(404, f'{task} has no run with the id "{run_id}"')
    return run


@Operation(
    "GET",
    "/api/logs/search",
    role=Role.VIEWER,
    scoped=True,
    query=(*_WHAT, *UNIT_PARAMS, *_HOW_MUCH),
    answers={200: json_of(schemas.LogSearchPage)},
    refusals=(404,),
    tag="logs",
)
def search_logs(context: Context, call: Call) -> None:
    """Search the logs of all tasks and services, newest run first."""
    query = call.query
    units = units_of(call)
    scope = context.reads(_scope, units)
    since_ms: int | None = query["since"]
    until_ms: int | None = query["until"]
    same: tuple[object, ...] = (
        *("", *units.names, "", units.group, units.tag),
        *(() if units.flow_run_id is None else (units.flow_run_id,)),
        *(query["q"], bool(query["regex"]), bool(query["case"]), query["stream"], since_ms, until_ms),
    )
    if query["raw"]:
        same += ("raw",)
    position = _position(same, query["cursor"])
    if until_ms is not None and position.created_at > until_ms:
        position = Position(until_ms, _NEWEST.run_id, 0)

    def read(created_at: int, at: str) -> list[Run]:
        return context.reads(runs_by_unit.runs_with_logs, scope, since_ms, (created_at, at), _RUNS)

    scan = _scanned(context, call, read, position)
    call.answer(
        schemas.LogSearchPage(
            items=[
                schemas.LogSearchHit(
                    task_name=run.task_name,
                    instance_index=run.instance_index,
                    run_id=run.id,
                    n=hit.n,
                    ts=hit.ts,
                    stream=STREAM_NAMES[hit.stream],
                    text=_text(hit),
                )
                for run, hit in scan.hits
            ],
            next_cursor=scan.cursor(same),
            searched_back_to=rfc3339(scan.waiting[0].created_at) if scan.waiting else UNSET,
            exhausted=not scan.waiting,
            scanned_runs=scan.runs,
            scanned_bytes=scan.bytes,
        )
    )


def _scope(db: Database, units: Units) -> RunScope | None:
    """Return the units to search; None for all, including units removed from the configuration.

    Raises:
        ApiError: 404 the selection matches nothing.
    """
    if units.selects:
        return units.resolve(db)
    if units.tasks is None:
        return None
    with db.snapshot() as view:
        return RunScope(frozenset(name for name in task_names(view) if units.sees(name)))


def _text(hit: Hit) -> str:
    return hit.text.decode("utf-8", "replace")


def _scanned(context: Context, call: Call, read: Callable[[int, str], list[Run]], position: Position) -> _Scan:
    """Search until a limit of the call is reached, or all runs are searched.

    Raises:
        ApiError: 422 the pattern is invalid; 503 too many searches.
    """
    query = call.query
    runs = _SearchedRuns(read, position)
    with context.searches.turn():
        pattern = context.searches(_pattern, query)
        scan = _Scan(pattern, _selection(query), query["limit"], context.feeds.paths, position.line)
        batch = runs.next_batch()
        if batch and batch[0].id != position.run_id:
            scan.line = 0  # the cursor's run is gone
        scan.waiting.extend(batch)
        until_s = time.monotonic() + _CALL_S
        try:
            while scan.waiting:
                context.searches(scan.turn)
                if not scan.waiting:
                    scan.waiting.extend(runs.next_batch())
                if scan.full or time.monotonic() >= until_s or context.stopping.is_set():
                    break
        finally:
            scan.close()
    return scan


def _selection(query: dict[str, Any]) -> LineSelection:
    stream = STREAM_NAMES.index(query["stream"]) if query["stream"] else None
    since_ms, until_ms = query["since"], query["until"]
    everything = LineSelection(stream)
    return everything._replace(
        since_ms=everything.since_ms if since_ms is None else since_ms,
        until_ms=everything.until_ms if until_ms is None else until_ms,
    )


def _position(same: tuple[object, ...], cursor: str | None) -> Position:
    if cursor is None:
        return _NEWEST
    try:
        return _from_cursor(same, cursor)
    except ValueError as err:
        raise invalid([schemas.ErrorDetail("query.cursor", str(err), cursor)]) from err


def _pattern(query: dict[str, Any]) -> Pattern:
    try:
        return Pattern(query["q"], regex=bool(query["regex"]), ignore_case=not query["case"], raw=bool(query["raw"]))
    except BadPattern as err:
        raise invalid([schemas.ErrorDetail("query.q", str(err), query["q"])]) from err
