"""Runs as jobs of another engine, such as a container engine: commands of its launcher, and tracking of the jobs.

Only the scheduler imports this room.
"""
