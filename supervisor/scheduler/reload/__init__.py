"""Reload of the configuration while runs continue, and its copy for later schedulers.

Only the scheduler imports this room. :mod:`supervisor.config` parses the files.
"""
