"""Lines that a program draws again, such as progress bars, reduced to their final state.

The ring writer feeds this room, and readers show the history that it keeps. It knows nothing of files or rings but
the formats of the history.
"""
