"""The schema, as numbered steps forward; :mod:`store.migrations.runner` applies the steps that a database lacks.

A step is a module `NNNN_name.py` with `up(db)`, which changes the schema, and `READABLE_FROM`: the oldest schema
version whose readers can still read the result (each step is readable by the release before it).
"""
