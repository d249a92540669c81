"""Resources about runs and their logs.

Only the application's table of operations imports this room.
"""
