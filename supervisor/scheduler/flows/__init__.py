"""Flows: what carries out the decisions of :mod:`supervisor.schedule.flow_graph`, and the data of steps.

Only the scheduler imports this room. A run of a flow is a run like any other; its executor is here instead of the root.
"""
