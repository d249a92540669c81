"""How a process of a run is made: the queue of starts, the zygote and the shell in front of a command.

Only the root imports this room, except for the zygote, which is a process of its own.
"""
