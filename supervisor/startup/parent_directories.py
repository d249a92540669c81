"""The directories above a file that is to be made."""

import os


def make_parents(path: str) -> None:
    """Make those that are missing, writable by their owner alone.

    Else whoever may rename what is in one of them could put something in its place; and :func:`os.makedirs` leaves the
    modes of all but the last to the umask.

    Raises:
        OSError: one cannot be made.
    """
    parent = os.path.dirname(path)
    if parent in ("", path) or os.path.isdir(parent):
        return
    make_parents(parent)
    try:
        os.mkdir(parent, 0o755)
    except FileExistsError:  # somebody else has made it at this moment, or it is none
        if not os.path.isdir(parent):
            raise
