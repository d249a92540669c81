"""A run from its creation to its end: when it starts, with what, and what its end means.

Only the scheduler imports this room. Transitions are pure tables; the engine carries their actions out.
"""
