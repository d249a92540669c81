"""Back up a SQLite database that is in use: SQLite's online backup, an integrity check, then a rename.

backup_database.py DATABASE DIRECTORY [--keep N]
"""

import argparse
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

PAGES_PER_STEP = 256


def backup(source: Path, target: Path) -> int:
    """Copy `source` to the new file `target`, check the copy, and return its size in bytes.

    Raises:
        sqlite3.Error: the source cannot be read, or the copy is damaged.
    """

    def progress(_status: int, remaining: int, total: int) -> None:
        print(f"{total - remaining} of {total} pages")

    with (
        closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as database,
        closing(sqlite3.connect(target)) as copy,
    ):
        database.backup(copy, pages=PAGES_PER_STEP, progress=progress)
        (verdict,) = copy.execute("pragma integrity_check").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged: {verdict}")
        copy.execute("pragma journal_mode = delete")
    return target.stat().st_size


def main() -> int:
    """Make one backup and remove the oldest ones."""
    parser = argparse.ArgumentParser(description="Back up a SQLite database.")
    parser.add_argument("database", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--keep", type=int, default=7)
    arguments = parser.parse_args()
    if not arguments.database.exists():
        print(f"{arguments.database} does not exist", file=sys.stderr)
        return 1
    arguments.directory.mkdir(parents=True, exist_ok=True)
    stem = arguments.database.stem
    temporary = arguments.directory / f".{stem}.new"
    temporary.unlink(missing_ok=True)
    size = backup(arguments.database, temporary)
    final = arguments.directory / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}.db"
    os.rename(temporary, final)
    print(f"{final}: {size} bytes, integrity ok")
    for old in sorted(arguments.directory.glob(f"{stem}-*.db"))[: -arguments.keep]:
        old.unlink()
        print(f"removed {old}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
