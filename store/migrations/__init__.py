"""The schema, as numbered steps forward; :mod:`store.migrations.runner` applies the steps that a database lacks.

A step is a module `NNNN_name.py` with `up(db)`, which changes the schema, and `READABLE_FROM`: the oldest schema
version whose readers can still read the result (each step is readable by the release before it). A step whose result an
older release may also write to has `WRITABLE_FROM`, and if needed `after_older(db, since_ms)`, which adapts what that
release wrote.
"""
