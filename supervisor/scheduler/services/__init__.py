"""Instances of services: started in order, watched, restarted and stopped.

Only the scheduler imports this room. Transitions are pure tables; the controller carries their actions out.
"""
