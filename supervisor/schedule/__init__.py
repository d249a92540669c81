"""Schedules as pure functions: cron fields, instants, clock changes, catch-up, and admission of runs.

The configuration, importers, the simulation and the scheduler import this room. It reads no clock, file or database.
"""
