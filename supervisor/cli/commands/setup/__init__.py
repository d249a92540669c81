"""Commands that set a host up: validate, import, doctor, service, demo, completion.

Only the command line imports this room, one module when its command is called.
"""
