"""Resources about who may come in: login, tokens, audit.

Only the application's table of operations imports this room.
"""
