"""Copies of a SQLite database, and recovery of readable data from a damaged one.

The scheduler and the janitor use this package when a copy is due or damage is found; nothing on the normal path of a
run imports it.
"""
