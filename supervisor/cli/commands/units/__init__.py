"""Commands about tasks and services.

Only the command line imports this room, one module when its command is called.
"""
