"""The scheduler's use of the database: opening, commits, damage, retention, disk space, samples.

Only the scheduler imports this room. Tables and SQL belong to :mod:`store`.
"""
