"""Start and shutdown of the scheduler: the lock, the takeover of earlier runs, and the order of stops.

Only the entry point of the scheduler and its assembly import this room.
"""
