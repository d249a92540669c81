"""Information about the host and the daemon's own processes.

The resources import this package; it imports no resource.
"""
