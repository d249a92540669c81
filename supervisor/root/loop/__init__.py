"""The control thread: its events, signals and timers, and its reserve for a shortage of memory.

Only the root imports this room. Nothing here waits for a file system or a name service.
"""
