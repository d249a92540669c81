"""The directories above a file that is to be made."""

import os


def make_parents(path: str) -> None:
    """Make the missing parents, writable by their owner alone.

    Otherwise a user who may rename entries of a parent could replace the directory; and :func:`os.makedirs` leaves the
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
    except FileExistsError:  # another process has just made it, or it is no directory
        if not os.path.isdir(parent):
            raise
