"""Processes of runs: their table, how they are stopped and reaped, and what they leave behind.

Only the root imports this room. The control thread owns it; nothing here waits for a file system.
"""
