"""The schema, as numbered steps forward; the runner applies the steps that a database lacks.

A step is a module `NNNN_name.py` with `up(db)`, which changes the schema, and `READABLE_FROM`: the oldest schema
version whose readers can still read the result (each step is readable by the release before it).
"""

from store.migrations.runner import Migration, check_readable, known, migrate

__all__ = ["Migration", "check_readable", "known", "migrate"]
