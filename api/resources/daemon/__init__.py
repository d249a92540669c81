"""Resources about the daemon: its state, host, metrics, events, notifications and pages.

Only the application's table of operations imports this room.
"""
