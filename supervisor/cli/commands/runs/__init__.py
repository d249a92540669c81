"""Commands about runs and their logs.

Only the command line imports this room, one module when its command is called.
"""
