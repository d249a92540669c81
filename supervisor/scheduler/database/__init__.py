"""The scheduler's use of the database: commits, damage, retention, samples.

Only the scheduler imports this room. Tables and SQL belong to :mod:`store`.
"""
