"""Services and their instances: start order, dependencies, health, restarts and incidents.

Only the scheduler imports this room. The transitions are a pure table; the controller carries out its actions.
"""
