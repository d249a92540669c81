"""The control thread: what wakes it, its signals and timers, and what it does when memory is short.

Only the root imports this room. Nothing here waits for a file system or a name service.
"""
