"""The daemon and its host in figures: facts of the host, our own processes, samples.

Resources import this room; it imports no resource.
"""
