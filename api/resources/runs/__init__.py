"""Handlers for runs and their logs.

Only the application's table of operations imports this package.
"""
