"""Add measurements of this host to a SQLite database, and create it if necessary.

fill_database.py DATABASE [--rows N]
"""

import argparse
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

SCHEMA = """
create table if not exists measurement (
    id integer primary key, at_ms integer not null, load real not null, free_bytes integer not null
)
"""


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description="Add measurements to a SQLite database.")
    parser.add_argument("database", type=Path)
    parser.add_argument("--rows", type=int, default=10)
    arguments = parser.parse_args()
    arguments.database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(arguments.database, timeout=10)) as database:
        database.execute("pragma journal_mode = wal")
        database.execute(SCHEMA)
        for _ in range(arguments.rows):
            load, free = os.getloadavg()[0], shutil.disk_usage(arguments.database.parent).free
            with database:
                database.execute(
                    "insert into measurement (at_ms, load, free_bytes) values (?, ?, ?)",
                    (time.time_ns() // 1_000_000, load, free),
                )
        (count,) = database.execute("select count(*) from measurement").fetchone()
    print(f"load {load:.2f}, {free >> 20} MiB free; {arguments.rows} rows added, {count} in total")


if __name__ == "__main__":
    main()
