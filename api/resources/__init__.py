"""Operations and their handlers: a file for each resource, and a folder for runs and their logs.

Only the application imports this package, for its table of operations and the routes of the dashboard's files.
"""
