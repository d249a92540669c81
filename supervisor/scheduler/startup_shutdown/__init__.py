"""Start and end of the scheduler: takeover of earlier runs, and the order of a shutdown.

Only the scheduler's entry imports this room.
"""
