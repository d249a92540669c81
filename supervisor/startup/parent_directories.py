"""Creation of missing parent directories."""

import os


def make_parents(path: str) -> None:
    """Create the missing parents of `path`, writable only for their owner.

    A user who can write to a parent could rename its entries, and so replace the directory. :func:`os.makedirs` is not
    used: it leaves the modes of parents to the umask.

    Raises:
        OSError: a parent cannot be created.
    """
    parent = os.path.dirname(path)
    if parent in ("", path) or os.path.isdir(parent):
        return
    make_parents(parent)
    try:
        os.mkdir(parent, 0o755)
    except FileExistsError:  # another process has just created it, or it is not a directory
        if not os.path.isdir(parent):
            raise
