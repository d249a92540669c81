"""How runs survive their root: recovery records, upgrades in place, and recovery after a kill.

Only the root imports this room. Other versions read its formats, so every field is named in a schema.
"""
