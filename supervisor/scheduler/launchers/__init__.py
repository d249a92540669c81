"""Runs that another engine carries out: its commands, and the jobs that stand for runs.

Only the scheduler imports this room.
"""
