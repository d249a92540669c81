"""The scheduler's loop: its clocks, its connection to the root, and reads that take long.

Only the scheduler imports this room. It knows no task or service.
"""
