"""The scheduler's own start and end: what it takes over, and in which order it lets go.

Only the scheduler's entry imports this room.
"""
