"""Processes of runs: their table, stopping, reaping, and leftovers.

Only the root imports this room. The control thread owns it; nothing here waits for a file system.
"""
