"""Configuration files: where they are, how they are read, and the line of each key.

The loader of :mod:`supervisor.config`, the scheduler's reload and the command line import this room.
"""
