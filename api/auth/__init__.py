"""Who asks, what they may do, and who did what.

Resources and the application import this room; it imports no resource.
"""
