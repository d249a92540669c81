"""Output of runs: the pump thread fills rings, the file thread writes log files.

Only the root imports this room. Only the file thread may wait for a disk.
"""
