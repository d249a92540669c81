"""Restoring a damaged or lost database from its copy.

Readable data newer than the copy is taken over: runs, and the state of tasks. Rows that Ringward cannot have written
are left out. All rows go through the statements that store them normally, so triggers count them.
"""

import contextlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_type_hints

from store.daemon_values import set_meta
from store.database import Database, open_writer
from store.errors import Conflict, DatabaseUnusable, StoreError
from store.events import append
from store.idempotency import adopt
from store.notifications import unread_count
from store.recovery.copies import check_file, copied_at_ms, copy_path, put
from store.recovery.damaged_file import DamagedFile, opened
from store.runs.definitions import Definition, put_definition
from store.runs.ids import is_ulid
from store.runs.phases import END_REASONS, PHASES
from store.runs.record import COLUMNS, Run, from_row
from store.runs.samples import COLUMNS as SAMPLE_COLUMNS
from store.runs.samples import keep, parsed
from store.runs.writes import delete_run, get_run, insert_run, unfinished_runs, update_run
from store.tasks import TaskRecord, all_tasks, put_back, update_task

_PARTS = ("", "-wal", "-shm")
_GAP = 1_000_000
"""More than the number of events since the copy. Event numbers continue after this gap, so none is used twice."""
_LIMIT_S = 60.0
_REUSED = 1000
"""Number of the copy's newest runs that may have been purged since, and whose row numbers may be used again."""
_TRIGGERS = frozenset({"cron", "api", "cloud", "service", "startup"})
_HASH = re.compile("[0-9a-f]{32}")
_NAME = re.compile(r"(?!\.+\Z)[A-Za-z0-9._:-]{1,100}")
_LATEST = 2**53
"""Upper limit of times and amounts. All integers below it have an exact float."""
_EXIT_CODES = range(-2, 256)
_TYPES = {name: hint for name, hint in get_type_hints(Run).items() if name != "params"}
_TASK_TYPES = get_type_hints(TaskRecord)
_FLAGS = ("configured", "paused", "stopped")


class SalvageResult(NamedTuple):
    """The data that was taken over from a damaged database.

    Attributes:
        runs: Number of runs that the copy lacks.
        changes: Number of runs that changed after the copy.
        invalid: Number of rows that were read but left out.
        gaps: Number of ranges or single rows that could not be read.
        current: Whether the readable part is up to date, so that waiting runs have not started.
        waiting: Ids of the waiting runs; empty unless `current`.
        accounted: Names of the tasks whose newest instant is known; empty unless `current`.
        last_event: Number of the newest event; 0 if unknown.
        failed: Why nothing could be taken over; empty if something could.
    """

    runs: int = 0
    changes: int = 0
    invalid: int = 0
    gaps: int = 0
    current: bool = False
    waiting: frozenset[str] = frozenset()
    accounted: frozenset[str] = frozenset()
    last_event: int = 0
    failed: str = ""


def salvage(database: Database, damaged: str, copy: str, newest_event: int | None) -> SalvageResult:
    """Take over the readable data, in one transaction.

    Args:
        database: the new database, which began as the copy.
        damaged: path of the damaged database, which must have no writer.
        copy: path of its copy.
        newest_event: number of the newest event that any client has seen; None if unknown.

    Raises:
        StoreError: nothing can be read, or the data cannot be written.
        OSError: there is no space for a duplicate of the damaged database.
    """
    with opened(damaged, copy, _LIMIT_S) as wreck, database.transaction():
        return _Salvage(database, wreck).done(newest_event)


class _Salvage:
    def __init__(self, database: Database, wreck: DamagedFile) -> None:
        self._database = database
        self._wreck = wreck
        self._runs = 0
        self._changes = 0
        self._invalid = 0
        self._waiting: set[str] = set()
        self._columns = wreck.columns("runs", COLUMNS)

    def done(self, newest_event: int | None) -> SalvageResult:
        """Take over all data and return the result."""
        last_event = self._last_event()
        current = newest_event is not None and last_event >= max(1, newest_event)
        self._change_unfinished()
        self._add_younger()
        tasks = self._change_tasks()
        self._keep_keys()
        self._keep_definitions()
        return SalvageResult(
            runs=self._runs,
            changes=self._changes,
            invalid=self._invalid,
            gaps=self._wreck.gaps,
            current=current,
            waiting=frozenset(self._waiting if current else ()),
            accounted=frozenset(tasks if current else ()),
            last_event=last_event,
        )

    def _last_event(self) -> int:
        """Return the number of the newest event; 0 if it is unreadable."""
        row = self._wreck.row("SELECT seq, created_at, body FROM outbox NOT INDEXED ORDER BY seq DESC LIMIT 1")
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            if row is not None and all(map(_is_amount, row[:2])) and isinstance(json.loads(row[2]), dict):
                return int(row[0])
        return 0

    def _change_unfinished(self) -> None:
        for run in unfinished_runs(self._database):
            row = self._database.row("SELECT seq FROM runs WHERE id = ?", [run.id])
            if row is None:
                continue
            values = self._wreck.row(f"SELECT {self._columns} FROM runs NOT INDEXED WHERE seq = ?", row)  # noqa: S608 - ours
            now = None if values is None else self._parsed(values)
            if now is None or now.id != run.id:
                continue
            changes = {name: value for name, value in now._asdict().items() if value != getattr(run, name)}
            if "status" in changes or "end_reason" in changes:
                changes |= {"status": now.status, "end_reason": now.end_reason}
            with self._conflicts():
                if changes:
                    update_run(self._database, run.id, **changes)
                self._hang_on(now, row[0])
                self._changes += bool(changes)

    def _add_younger(self) -> None:
        row = self._database.row("SELECT COALESCE(max(seq), 0) FROM runs")
        last: int = row[0] if row is not None else 0
        for seq, *values in self._wreck.rows("runs", self._columns, max(0, last - _REUSED)):
            if seq <= last and get_run(self._database, values[0], include_deleted=True) is not None:
                continue
            run = self._parsed(tuple(values))
            if run is None:
                continue
            with self._conflicts():
                insert_run(self._database, run)
                self._hang_on(run, seq)
                self._runs += 1

    def _hang_on(self, run: Run, seq: int) -> None:
        """Take over the other stored data of a run."""
        if run.status == "pending":
            self._waiting.add(run.id)
        if run.status != "ended":
            return
        # Store the samples after the end was counted: the earlier counts that they refer to were not taken over.
        samples = self._wreck.row(f"SELECT {SAMPLE_COLUMNS} FROM run_samples WHERE run_id = ?", [run.id])  # noqa: S608 - ours
        if samples is not None:
            with contextlib.suppress(ValueError, TypeError):
                keep(self._database, run.id, parsed(samples))
        deleted = self._wreck.row("SELECT deleted_at FROM deleted_runs WHERE run = ?", [seq])
        if deleted is not None and _is_amount(deleted[0]):
            delete_run(self._database, run.id, deleted[0])

    def _change_tasks(self) -> set[str]:
        """Take over the state of tasks; return the names of the readable ones."""
        names = set()
        for _, *values in self._wreck.rows("tasks", self._wreck.columns("tasks", TaskRecord._fields)):
            task = _task(dict(zip(TaskRecord._fields, values, strict=True)))
            if task is None:
                self._invalid += 1
                continue
            put_back(self._database, task)
            names.add(task.name)
        return names

    def _keep_keys(self) -> None:
        for key, run_id, request, created_at in self._wreck.ordered(
            "SELECT key, run_id, request, created_at FROM trigger_keys", "key"
        ):
            if isinstance(key, str) and isinstance(request, str) and _is_id(run_id) and _is_amount(created_at):
                adopt(self._database, key, run_id, request, created_at)
            else:
                self._invalid += 1

    def _keep_definitions(self) -> None:
        if not self._wreck.has_table("definitions"):  # the database has not been migrated yet
            return
        query = "SELECT task_name, hash, definition, replaced_at FROM definitions"
        for task_name, definition_hash, text, replaced_at in self._wreck.ordered(query, "task_name"):
            if (
                _is_name(task_name)
                and _is_hash(definition_hash)
                and _is_object(text)
                and (replaced_at is None or _is_amount(replaced_at))
            ):
                put_definition(self._database, task_name, Definition(text, definition_hash), replaced_at)
            else:
                self._invalid += 1

    def _parsed(self, row: tuple[object, ...]) -> Run | None:
        """Return the run in a row; None if Ringward cannot have written it, which is counted."""
        try:
            run = from_row((*row, None))
        except (LookupError, TypeError, ValueError, RecursionError):
            run = None
        if run is not None and is_sound(run):
            return run
        self._invalid += 1
        return None

    @contextlib.contextmanager
    def _conflicts(self) -> Iterator[None]:
        """Leave out, and count, a row that conflicts with others."""
        try:
            with self._database.transaction():
                yield
        except Conflict:
            self._invalid += 1


def is_sound(run: Run) -> bool:
    """Return whether Ringward can have written a run."""
    values = run._asdict()
    if not all(isinstance(values[name], hint) for name, hint in _TYPES.items()):
        return False
    amounts = [value for name, value in values.items() if isinstance(value, int) and name != "exit_code"]
    return (
        is_ulid(run.id)
        and (run.retry_of_run_id is None or is_ulid(run.retry_of_run_id))
        and _is_name(run.task_name)
        and run.kind in ("task", "service")
        and run.status in PHASES
        and (run.end_reason in END_REASONS) == (run.status == "ended") == (run.ended_at is not None)
        and (run.started_at is not None or run.status != "running")
        and run.triggered_by in _TRIGGERS
        and run.exit_code in _EXIT_CODES
        and all(_is_amount(value) for value in amounts)
        and _are_params(run.params)
        and _are_names(run.leftovers)
        and (run.definition_hash is None or _is_hash(run.definition_hash))
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str) and is_ulid(value)


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _LATEST


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _is_object(text: object) -> bool:
    with contextlib.suppress(ValueError, RecursionError):
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    return False


def _are_params(params: object) -> bool:
    return params is None or (
        isinstance(params, dict) and all(value is None or isinstance(value, str) for value in params.values())
    )


def _are_names(text: str | None) -> bool:
    if text is None:
        return True
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _task(values: dict[str, Any]) -> TaskRecord | None:
    """Return the task in a row; None if Ringward cannot have written it."""
    if any(values[name] not in (0, 1) for name in _FLAGS):
        return None
    task = TaskRecord(**values | {name: bool(values[name]) for name in _FLAGS})
    fields = task._asdict()
    sound = all(isinstance(fields[name], hint) for name, hint in _TASK_TYPES.items()) and (
        _is_name(task.name)
        and task.kind in ("task", "service")
        and all(_is_amount(value) for value in fields.values() if isinstance(value, int))
    )
    return task if sound else None


# Restoring


@dataclass(frozen=True)
class RestoreResult:
    """The result of a restore."""

    copied_at_ms: int
    """Time at which the copy was made, ms since the epoch."""
    damaged: str | None
    """New path of the damaged database; None if there was none."""
    salvaged: SalvageResult
    """The data taken over from the damaged database."""


def restore(
    path: str,
    now_ms: int,
    remember: Callable[[RestoreResult], Mapping[str, object]] = lambda _: {},
    newest_event: int | None = None,
) -> RestoreResult:
    """Replace a database without a writer by its copy, and move the old database aside.

    Readable data of the old database that is newer than the copy is taken over. Readers continue with the old database
    until they next check their files. Other runs of the copy stay unchanged.

    Args:
        path: path of the database.
        now_ms: current time, ms since the epoch. Schedule instants up to it count as handled, unless more is known.
        remember: returns values of :mod:`store.daemon_values` to store, by name.
        newest_event: number of the newest event that any client has seen; None if unknown.

    Raises:
        DatabaseDamaged: the copy is damaged too.
        DatabaseUnusable: there is no copy.
        OSError: the restore fails at present; it can be repeated.
    """
    import shutil  # as in damaged_file

    made_ms = copied_at_ms(path)
    if made_ms is None:
        raise DatabaseUnusable(f"there is no copy of {path}")
    new = _cleared_new_path(path)
    shutil.copyfile(copy_path(path), new)
    os.chmod(new, 0o600)
    check_file(new)
    damaged_path = _path_for_damaged(path, now_ms)
    with contextlib.closing(open_writer(new)) as database:
        salvaged = _salvaged(database, path, newest_event)
        result = RestoreResult(made_ms, damaged_path, salvaged)
        with database.transaction():
            _prevent_repeats(database, now_ms, salvaged)
            for name, value in remember(result).items():
                set_meta(database, name, value)
    _replace(path, new, damaged_path)
    return result


def prepare_restored(database: Database, now_ms: int, remember: Mapping[str, object], newest_event: int) -> None:
    """Prepare a database that a user restored and that lacks the daemon's last actions.

    Args:
        database: the writer.
        now_ms: current time, ms since the epoch.
        remember: values of :mod:`store.daemon_values` to store, by name.
        newest_event: number of the newest event that any client has seen.
    """
    with database.transaction():
        _prevent_repeats(database, now_ms, SalvageResult(last_event=newest_event))
        for name, value in remember.items():
            set_meta(database, name, value)


def start_anew(
    path: str, now_ms: int, remember: Callable[[str | None], Mapping[str, object]], newest_event: int | None
) -> str | None:
    """Replace a lost database by one with an empty history, and move the lost one aside.

    Args:
        path: path of the database, which must have no writer.
        now_ms: current time, ms since the epoch.
        remember: gets the new path of the damaged database, and returns values of :mod:`store.daemon_values` to store,
            by name.
        newest_event: number of the newest event that any client has seen; None if unknown.

    Returns:
        The new path of the damaged database; None if there was none.

    Raises:
        StoreError, OSError: this fails at present; it can be repeated.
    """
    new = _cleared_new_path(path)
    damaged_path = _path_for_damaged(path, now_ms)
    with contextlib.closing(open_writer(new)) as database:
        prepare_restored(database, now_ms, remember(damaged_path), newest_event or 0)
    _replace(path, new, damaged_path)
    return damaged_path


def _cleared_new_path(path: str) -> str:
    """Return the path of the next database, after removing leftovers there."""
    new = f"{path}.new"
    for part in _PARTS:  # an interrupted restore may have left it
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new + part)
    return new


def _path_for_damaged(path: str, now_ms: int) -> str | None:
    """Return an unused path to which to move a damaged database; None if there is no database."""
    if not any(os.path.exists(path + part) for part in _PARTS):
        return None
    name = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_ms / 1000))}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(candidate for candidate in names if not any(os.path.lexists(candidate + part) for part in _PARTS))


def _replace(path: str, new: str, damaged_path: str | None) -> None:
    if damaged_path is not None:
        for part in _PARTS:
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + part, damaged_path + part)
    put(new, path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{path}.suspect")


def _salvaged(database: Database, path: str, newest_event: int | None) -> SalvageResult:
    """Salvage the data of a damaged database into `database`, all of it or, on an error, none."""
    if not os.path.exists(path):
        return SalvageResult()
    try:
        return salvage(database, path, copy_path(path), newest_event)
    except (StoreError, OSError) as err:
        return SalvageResult(failed=str(err))


def _prevent_repeats(database: Database, now_ms: int, salvaged: SalvageResult) -> None:
    """Prevent a second execution of instants, and continue with new event numbers.

    Instants that were due after the copy was made may already have run, unless the salvaged data proves otherwise.
    Clients have already seen events with the numbers that follow the copy's last one.
    """
    for task in all_tasks(database):
        if task.last_instant is not None and task.name not in salvaged.accounted:
            update_task(database, task.name, last_instant=max(task.last_instant, now_ms))
    # Append an event, because there may be none whose number can be raised. The unread count is that of the copy again.
    append(database, "notification.unreadCountChanged", {"count": unread_count(database)}, now_ms)
    database.execute(
        "UPDATE outbox SET seq = max(seq, ?) + ? WHERE seq = (SELECT max(seq) FROM outbox)",
        [salvaged.last_event, _GAP],
    )
