"""The scheduler's event loop and its users: clocks, the connection to the root, helper processes, threads, events.

Only the scheduler imports this room, which knows nothing of tasks and services.
"""
