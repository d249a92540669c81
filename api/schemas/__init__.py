"""Records as sent on the wire: shapes, names and times.

The resources import this package. It reads neither the database nor any ring.
"""
