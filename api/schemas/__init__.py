"""Records as the wire carries them: shapes, names and times.

Resources import this room; it reads no database and no ring.
"""
