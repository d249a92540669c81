"""Schedules as pure functions: cron fields, instants, time zones, catching up, and the order of waiting runs.

The configuration, importers, the simulation and the scheduler import this room. It reads no clock, no file and no
database.
"""
