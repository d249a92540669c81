"""The life of a run: admission, spawn request, transitions, end reason and retry.

Only the scheduler imports this room. The transitions are a pure table; the engine carries out its actions.
"""
