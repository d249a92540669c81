"""The root's side of a service manager: readiness, watchdog, reload.

Only the root imports this room.
"""
