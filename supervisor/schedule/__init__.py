"""Schedules as pure functions: cron fields, instants, time zones, and catching up.

The configuration, importers, the simulation and the scheduler import this room. It reads no clock, no file and no
database.
"""
