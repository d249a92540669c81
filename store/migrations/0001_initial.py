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

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""

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
    for trigger in _triggers():
        db.execute(trigger)
