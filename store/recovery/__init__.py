"""Copies of a SQLite database, and recovery of readable data from a damaged one.

The scheduler and the janitor call this room when a copy is due or damage is met; nothing on the normal path of a run
imports it.
"""
