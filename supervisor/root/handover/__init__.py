"""How runs outlive their root: the records of each run, upgrades in place, and recovery after a kill.

Only the root imports this room. Its formats are read by other versions, so its tables name every field.
"""
