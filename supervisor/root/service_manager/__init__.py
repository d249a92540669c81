"""Notifications to a service manager: readiness, watchdog, reload.

Only the root imports this room.
"""
