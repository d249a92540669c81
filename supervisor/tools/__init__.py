"""Tools that only the command line uses: backup, demo, doctor, importers, service files and simulation.

No other package imports this one.
"""
