"""Another configuration, put into force while runs go on.

Only the scheduler imports this room. Reading files is the business of :mod:`supervisor.config`.
"""
