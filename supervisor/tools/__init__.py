"""What only the command line uses: backup, demo, doctor, importers, service files, simulation.

The command line imports this room, and nobody else does.
"""
