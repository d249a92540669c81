"""Tools of the command line alone: backup, demo, doctor, importers, service files, simulation.

Only the command line imports this package.
"""
