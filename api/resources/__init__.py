"""Operations and their handlers, one noun a file; those of runs and their logs have a folder.

Only the application imports this room: its table of operations, and its routes of the dashboard's files.
"""
