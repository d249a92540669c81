"""Commands about the daemon: start, upgrade, reload, health, access, backup.

Only the command line imports this room, one module when its command is called.
"""
