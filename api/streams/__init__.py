"""Streams that follow rings: server-sent events and raw logs.

Resources import this room; it imports no resource. It writes nothing.
"""
