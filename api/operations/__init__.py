"""From a request to an operation to its answer: parameters, bodies, conditions, compression.

Resources import this room; it imports no resource.
"""
