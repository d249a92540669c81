"""The steps from a request to its response: parameters, bodies, conditional requests and compression.

The resources import this package; it imports no resource.
"""
