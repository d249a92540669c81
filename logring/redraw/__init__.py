"""Reduction of lines that a program redraws, such as progress bars, to their final state.

The ring writer feeds this package, and readers show the history that it keeps. The package knows nothing about rings
and log files, only the format of the history.
"""
