"""The types of configuration values: durations, schedules, probes, parameters and their kind.

Only :mod:`supervisor.config` and its users import this room. It reads no files.
"""
