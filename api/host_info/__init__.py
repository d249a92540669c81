"""The daemon and its host in figures: samples, metrics for Prometheus, damage.

Resources import this room; it imports no resource.
"""
