"""Streams that follow rings: server-sent events and raw logs.

The resources import this package; it imports no resource and never writes to the database.
"""
