"""The first schema.

Times are integer milliseconds since the epoch. `runs.state` is a number of store.phases (below 100: ended);
`runs.duration` is that of ended runs, so that it can be in an index.

Six indexes of the visible runs each carry every column that a list can be filtered by, after the one or two that they
are for, so that filtering never touches the table (a lookup costs ten times a step in the index); `id` stands behind
the sort column because ties break on it. They are partial: a query must say `deleted_at IS NULL` literally, and since
it says so the column is in them too, though always empty: an index is covering only with every column of a query.

`run_counts` holds exact numbers of visible ended runs by everything a list can be filtered by except parts of the id,
for all tasks together (task_name '') and for each task, in buckets of `created_at >> width` (2**27 ms are 37 hours,
2**22 ms are 70 minutes). Triggers keep it, so no statement can forget it.

`task_days` (by the UTC day of the end) and `task_totals` (for ever) count the ends of runs and add up their durations,
where `timed` is how many had one. Triggers keep them as well; unlike `run_counts` they do not shrink when runs go.

`purged` names runs whose rows are gone for good and whose files have still to go.

`samples` are facts about the host and the daemon, means over `width` milliseconds from `at` on.
"""

from store.connection import Connection

READABLE_FROM = 1

_TABLES = """
CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY,
    task_name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('task', 'service')),
    state INTEGER NOT NULL,
    exit_code INTEGER NOT NULL,
    instance_index INTEGER NOT NULL,
    retry_attempt INTEGER NOT NULL,
    retry_of_run_id TEXT,
    triggered_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    duration INTEGER CHECK (duration IS (ended_at - started_at)),
    execution_id TEXT,
    params TEXT,
    scheduled_at INTEGER,
    due_at INTEGER,
    signal INTEGER,
    core_dumped INTEGER NOT NULL,
    requested_by TEXT,
    lines INTEGER NOT NULL,
    user_us INTEGER,
    system_us INTEGER,
    max_rss_bytes INTEGER,
    missed_count INTEGER,
    deleted_at INTEGER
) STRICT;

CREATE TABLE run_counts (
    task_name TEXT NOT NULL,
    width INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    state INTEGER NOT NULL,
    exit_code INTEGER NOT NULL,
    triggered_by TEXT NOT NULL,
    retry INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (task_name, width, bucket, state, exit_code, triggered_by, retry)
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
    name TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('task', 'service')),
    definition TEXT NOT NULL,
    configured INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    stopped INTEGER NOT NULL,
    last_instant INTEGER,
    next_run_at INTEGER,
    last_run_id TEXT
) STRICT;

CREATE TABLE instances (
    task_name TEXT NOT NULL,
    instance_index INTEGER NOT NULL,
    state TEXT NOT NULL,
    run_id TEXT,
    since INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    PRIMARY KEY (task_name, instance_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE sessions (
    hash TEXT NOT NULL PRIMARY KEY,
    password_tag TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE samples (
    width INTEGER NOT NULL,
    at INTEGER NOT NULL,
    cpu REAL,
    load REAL,
    memory_used INTEGER,
    swap_used INTEGER,
    disk_used INTEGER,
    disk_read REAL,
    disk_written REAL,
    received REAL,
    sent REAL,
    cpu_pressure REAL,
    memory_pressure REAL,
    io_pressure REAL,
    running REAL,
    lag REAL,
    PRIMARY KEY (width, at)
) STRICT, WITHOUT ROWID;

CREATE TABLE notifications (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    severity TEXT NOT NULL CHECK (severity IN ('info', 'warn', 'error')),
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    task_name TEXT,
    run_id TEXT,
    times INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_occurred_at INTEGER NOT NULL,
    read_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE task_days (
    task_name TEXT NOT NULL,
    day INTEGER NOT NULL,
    state INTEGER NOT NULL,
    n INTEGER NOT NULL,
    timed INTEGER NOT NULL,
    duration INTEGER NOT NULL,
    longest INTEGER,
    PRIMARY KEY (task_name, day, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_totals (
    task_name TEXT NOT NULL,
    state INTEGER NOT NULL,
    n INTEGER NOT NULL,
    timed INTEGER NOT NULL,
    duration INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (task_name, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    name TEXT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    tasks TEXT,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    address TEXT NOT NULL,
    operation TEXT NOT NULL,
    target TEXT NOT NULL,
    status INTEGER NOT NULL,
    reason TEXT NOT NULL,
    failed_login INTEGER NOT NULL
) STRICT;

CREATE INDEX audit_kinds ON audit (failed_login, id);

CREATE TABLE trigger_keys (
    key TEXT NOT NULL PRIMARY KEY,
    run_id TEXT NOT NULL,
    request TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX trigger_keys_age ON trigger_keys (created_at);

CREATE TABLE purged (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_name TEXT NOT NULL,
    run_id TEXT NOT NULL
) STRICT;

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""

_NOTIFICATION_INDEXES = (
    "CREATE INDEX notifications_repeat ON notifications (kind, task_name, created_at)",
    "CREATE INDEX notifications_unread ON notifications (id) WHERE read_at IS NULL",
)

_FILTERED = "task_name, state, triggered_by, retry_attempt, exit_code, created_at, started_at, duration, deleted_at"
_ORDERED = {
    "runs_created": "created_at, id",
    "runs_started": "started_at, id",
    "runs_duration": "duration, id",
    "runs_task": "task_name, created_at, id",
    "runs_state": "state, created_at, id",
    "runs_trigger": "triggered_by, created_at, id",
}
# First attempts only: a retry carries the instant of the run that it repeats. Deleted runs keep their instant.
_UNIQUE_INSTANT = """
CREATE UNIQUE INDEX runs_instant ON runs (task_name, scheduled_at)
    WHERE scheduled_at IS NOT NULL AND retry_attempt = 0 AND kind = 'task'
"""
_DELETED = "CREATE INDEX runs_deleted ON runs (deleted_at) WHERE deleted_at IS NOT NULL"

_DAY_MS = 86_400_000
_COUNTED = "{row}.state < 100 AND {row}.deleted_at IS NULL"
_KEYS = (
    "'', 27, {row}.created_at >> 27, {rest}",
    "'', 22, {row}.created_at >> 22, {rest}",
    "{row}.task_name, 27, {row}.created_at >> 27, {rest}",
)
_REST = "{row}.state, {row}.exit_code, {row}.triggered_by, {row}.retry_attempt > 0"
_COLUMNS = "task_name, width, bucket, state, exit_code, triggered_by, retry"
_WATCHED = "task_name, created_at, state, exit_code, triggered_by, retry_attempt, deleted_at"


def _count(row: str, change: int) -> str:
    """The body of a trigger that adds 1 to the three numbers of a run, or takes 1 away."""
    keys = [key.format(row=row, rest=_REST.format(row=row)) for key in _KEYS]
    values = ", ".join(f"({key}, {change})" for key in keys)
    body = f"INSERT INTO run_counts VALUES {values} ON CONFLICT DO UPDATE SET n = n + {change};"  # noqa: S608 - constants
    if change < 0:
        body += "".join(f"DELETE FROM run_counts WHERE ({_COLUMNS}) = ({key}) AND n = 0;" for key in keys)  # noqa: S608 - constants
    return body


def _triggers() -> list[str]:
    made = []
    for name, event, row, change in (
        ("runs_count_insert", "INSERT", "NEW", 1),
        ("runs_count_change_from", f"UPDATE OF {_WATCHED}", "OLD", -1),
        ("runs_count_change_to", f"UPDATE OF {_WATCHED}", "NEW", 1),
        ("runs_count_delete", "DELETE", "OLD", -1),
    ):
        when = _COUNTED.format(row=row)
        made.append(f"CREATE TRIGGER {name} AFTER {event} ON runs WHEN {when} BEGIN {_count(row, change)} END")
    return made


def _roll_up(row: str) -> str:
    """The body of a trigger that adds an end of a run to its day and to the totals of its task."""
    at = f"COALESCE({row}.ended_at, {row}.created_at)"
    sums = f"1, {row}.duration IS NOT NULL, COALESCE({row}.duration, 0)"
    adding = "n = n + 1, timed = timed + excluded.timed, duration = duration + excluded.duration"
    return (
        f"INSERT INTO task_days VALUES ({row}.task_name, {at} / {_DAY_MS}, {row}.state, {sums}, {row}.duration)"  # noqa: S608 - constants
        f" ON CONFLICT DO UPDATE SET {adding}, longest ="
        " CASE WHEN excluded.longest > longest OR longest IS NULL THEN excluded.longest ELSE longest END;"
        f"INSERT INTO task_totals VALUES ({row}.task_name, {row}.state, {sums}, {at})"
        f" ON CONFLICT DO UPDATE SET {adding}, last_at = max(last_at, excluded.last_at);"
    )


def _roll_up_triggers() -> list[str]:
    body = _roll_up("NEW")
    ends = "OLD.state >= 100 AND NEW.state < 100"
    return [
        f"CREATE TRIGGER runs_roll_up_insert AFTER INSERT ON runs WHEN NEW.state < 100 BEGIN {body} END",
        f"CREATE TRIGGER runs_roll_up_end AFTER UPDATE OF state ON runs WHEN {ends} BEGIN {body} END",
    ]


def up(db: Connection) -> None:
    """Create the tables, indexes and triggers."""
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            db.execute(statement)
    for name, ordered in _ORDERED.items():
        first = ordered.split(", ")
        rest = [column for column in _FILTERED.split(", ") if column not in first]
        db.execute(f"CREATE INDEX {name} ON runs ({ordered}, {', '.join(rest)}) WHERE deleted_at IS NULL")
    db.execute(_UNIQUE_INSTANT)
    db.execute(_DELETED)
    for index in _NOTIFICATION_INDEXES:
        db.execute(index)
    for trigger in (*_triggers(), *_roll_up_triggers()):
        db.execute(trigger)
