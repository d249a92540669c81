"""The first schema.

Times are integer milliseconds since the epoch. `runs.state` is a number of store.runs.phases (below 100: ended).
`runs.duration` is the duration of an ended run. It is a column because indexes contain it.

Six indexes each contain every column that can filter a list, after the one or two sort columns, so filtering never
touches the table (a lookup costs ten times a step in the index). `id` follows the sort column because it breaks ties.
These indexes contain ended runs only; `runs_active` contains all others. Clients wait for the creation and the start of
a run, and each of these changes one page of one index instead of seven.

A row in `deleted_runs` marks a run as deleted until it is purged. The run stays in the indexes, because they are so
wide that removing and adding it would cost a hundred times as much.

`run_counts` holds exact numbers of visible ended runs, by every filter of a list except parts of the id, for all tasks
together (task_name '') and for each task, in buckets of `created_at >> width` (2**27 ms are 37 hours, 2**22 ms are 70
minutes): `n` runs, of which `started` have a start and `timed` a duration. Their starts lie between `first_start` and
`last_start`, a range that does not shrink when runs are removed. Triggers maintain the table, so no statement can
forget it. A daily job removes rows that have become 0 (store.runs.daily_outcomes). The key begins with the time: runs
end, and are deleted and restored, in about the order of their creation, so such changes touch few pages.

`run_durations` holds exact numbers of runs by duration. A bucket is a duration's first two digits and the number of
digits after them; its name is the shortest duration that belongs to it. Rows of 0 stay.

`run_ids` holds, for each bucket of 2**22 ms, two ids that enclose all ended runs created in it, including deleted ones.
This range does not shrink when runs are removed.

`task_days` (by the UTC day of the end) and `task_totals` (without a time limit) count the ends of runs and add up their
durations; `timed` is the number of runs with a duration. `task_totals` also counts these runs by upper bounds of
duration and of delay before the start, and `waited` is the sum of the delays in ms. `task_usage` sums up the resources
that runs used, in spans of `width` ms from `at` on. Triggers maintain these tables too (store.migrations.counting);
unlike those of `run_counts`, their numbers do not decrease when runs are removed.

`purged` lists runs whose rows are deleted and whose files may remain.

`samples` holds measurements of the host and the daemon, means over `width` milliseconds from `at` on. `run_samples` has
the resources that runs used; `run_passes` has the newest of these samples, not yet sorted by run (store.runs.samples).
"""

from store.connection import Connection
from store.migrations.counting import count
from store.migrations.define import define

READABLE_FROM = 1

_TABLES = """
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
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
    duration INTEGER CHECK (duration IS NOT DISTINCT FROM (ended_at - started_at)),
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
    read_bytes INTEGER,
    write_bytes INTEGER,
    oom_kills INTEGER,
    leftovers TEXT,
    failure_line INTEGER,
    missed_count INTEGER
) STRICT;

CREATE TABLE deleted_runs (
    run INTEGER PRIMARY KEY,
    deleted_at INTEGER NOT NULL
) STRICT;

CREATE INDEX deleted_runs_time ON deleted_runs (deleted_at, run);

CREATE TABLE run_counts (
    task_name TEXT NOT NULL,
    width INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    state INTEGER NOT NULL,
    exit_code INTEGER NOT NULL,
    triggered_by TEXT NOT NULL,
    retry INTEGER NOT NULL,
    n INTEGER NOT NULL,
    started INTEGER NOT NULL,
    timed INTEGER NOT NULL,
    first_start INTEGER,
    last_start INTEGER,
    PRIMARY KEY (width, bucket, task_name, state, exit_code, triggered_by, retry)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_durations (
    bucket INTEGER NOT NULL,
    state INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (bucket, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_ids (
    bucket INTEGER NOT NULL PRIMARY KEY,
    first_id TEXT NOT NULL,
    last_id TEXT NOT NULL
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
    last_run_id TEXT,
    fatal_since INTEGER,
    rolling TEXT,
    last_restart TEXT,
    last_boot TEXT,
    failures INTEGER NOT NULL DEFAULT 0,
    failed_attempts INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE instances (
    task_name TEXT NOT NULL,
    instance_index INTEGER NOT NULL,
    state TEXT NOT NULL,
    run_id TEXT,
    since INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    detail TEXT,
    PRIMARY KEY (task_name, instance_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY,
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

CREATE TABLE run_samples (
    run_id TEXT NOT NULL PRIMARY KEY,
    last_pass INTEGER NOT NULL,
    user_ms INTEGER NOT NULL,
    system_ms INTEGER NOT NULL,
    peak_rss_bytes INTEGER NOT NULL,
    read_bytes INTEGER,
    written_bytes INTEGER,
    points TEXT NOT NULL
) STRICT;

CREATE TABLE run_passes (
    number INTEGER PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;

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

CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    notifier TEXT NOT NULL,
    kind TEXT NOT NULL,
    severity TEXT NOT NULL,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    task_name TEXT,
    run_id TEXT,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    held INTEGER NOT NULL,
    attempts INTEGER NOT NULL
) STRICT;

CREATE INDEX deliveries_due ON deliveries (notifier, due_at);

CREATE TABLE told (
    notifier TEXT NOT NULL,
    kind TEXT NOT NULL,
    task_name TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (notifier, kind, task_name)
) STRICT, WITHOUT ROWID;

CREATE INDEX told_task ON told (kind, task_name);

CREATE TABLE notifiers (
    name TEXT NOT NULL PRIMARY KEY,
    delivered_at INTEGER,
    failed_at INTEGER,
    error TEXT,
    given_up INTEGER NOT NULL
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
    lasted_100 INTEGER NOT NULL DEFAULT 0,
    lasted_1000 INTEGER NOT NULL DEFAULT 0,
    lasted_10000 INTEGER NOT NULL DEFAULT 0,
    lasted_60000 INTEGER NOT NULL DEFAULT 0,
    lasted_300000 INTEGER NOT NULL DEFAULT 0,
    lasted_900000 INTEGER NOT NULL DEFAULT 0,
    lasted_3600000 INTEGER NOT NULL DEFAULT 0,
    lasted_14400000 INTEGER NOT NULL DEFAULT 0,
    lasted_86400000 INTEGER NOT NULL DEFAULT 0,
    waited INTEGER NOT NULL DEFAULT 0,
    waited_100 INTEGER NOT NULL DEFAULT 0,
    waited_1000 INTEGER NOT NULL DEFAULT 0,
    waited_10000 INTEGER NOT NULL DEFAULT 0,
    waited_60000 INTEGER NOT NULL DEFAULT 0,
    waited_600000 INTEGER NOT NULL DEFAULT 0,
    waited_3600000 INTEGER NOT NULL DEFAULT 0,
    user_us INTEGER NOT NULL DEFAULT 0,
    system_us INTEGER NOT NULL DEFAULT 0,
    read_bytes INTEGER,
    write_bytes INTEGER,
    PRIMARY KEY (task_name, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_usage (
    task_name TEXT NOT NULL,
    width INTEGER NOT NULL,
    at INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    user_us INTEGER NOT NULL,
    system_us INTEGER NOT NULL,
    peak_rss_bytes INTEGER,
    read_bytes INTEGER,
    write_bytes INTEGER,
    PRIMARY KEY (task_name, at, width)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_usage_age ON task_usage (width, at);

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
    key TEXT NOT NULL UNIQUE,
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

_FILTERED = "task_name, state, triggered_by, retry_attempt, exit_code, created_at, started_at, duration"
_ORDERED = {
    "runs_created": "created_at, id",
    "runs_started": "started_at, id",
    "runs_duration": "duration, id",
    "runs_task": "task_name, created_at, id",
    "runs_state": "state, created_at, id",
    "runs_trigger": "triggered_by, created_at, id",
}
_ENDED, _ACTIVE = "state < 100", "state >= 100"
_FUNCTIONS = (
    """CREATE FUNCTION instr(whole text, part text) RETURNS integer
       LANGUAGE sql IMMUTABLE STRICT AS 'SELECT strpos(whole, part)'""",
    """CREATE FUNCTION json_each(items text) RETURNS TABLE (value text)
       LANGUAGE sql IMMUTABLE STRICT ROWS 100 AS 'SELECT json_array_elements_text(CAST(items AS json))'""",
)
"""Functions that PostgreSQL lacks."""
# Only first attempts count: a retry has the instant of the run that it repeats. Deleted runs keep their instant.
_UNIQUE_INSTANT = """
CREATE UNIQUE INDEX runs_instant ON runs (task_name, scheduled_at)
    WHERE scheduled_at IS NOT NULL AND retry_attempt = 0 AND kind = 'task'
"""
_ID = "CREATE UNIQUE INDEX runs_id ON runs (id)"
_NOTHING_COUNTED = "CREATE INDEX run_counts_none ON run_counts (n) WHERE n = 0"
_COUNTED_IN_PLACE = [f"ALTER TABLE {name} SET (fillfactor = 60)" for name in ("run_counts", "run_durations")]
"""PostgreSQL changes a row by writing a new version. The version stays within the page if there is room and no index
contains the column; otherwise every index gets a new entry. So there is no index of numbers that have become 0."""


def up(db: Connection) -> None:
    """Create the tables, indexes and triggers."""
    for function in () if db.sqlite else _FUNCTIONS:
        db.execute(function)
    define(db, _TABLES)
    for name, ordered, where in (
        *((*row, _ENDED) for row in _ORDERED.items()),
        ("runs_active", _ORDERED["runs_task"], _ACTIVE),
    ):
        first = [column.split()[0] for column in ordered.split(", ")]
        others = [column for column in _FILTERED.split(", ") if column not in first]
        # In SQLite, every index contains the row number anyway.
        row_number = "" if db.sqlite else " INCLUDE (seq)"
        db.execute(f"CREATE INDEX {name} ON runs ({ordered}, {', '.join(others)}){row_number} WHERE {where}")
    for index in (_ID, _UNIQUE_INSTANT, *_NOTIFICATION_INDEXES):
        db.execute(index)
    for statement in (_NOTHING_COUNTED,) if db.sqlite else _COUNTED_IN_PLACE:
        db.execute(statement)
    count(db)
