"""Resources about tasks and services.

Only the application's table of operations imports this room.
"""
