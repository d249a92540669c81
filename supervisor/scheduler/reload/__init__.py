"""Reload of the configuration while runs continue.

Only the scheduler imports this room. :mod:`supervisor.config` reads the files.
"""
