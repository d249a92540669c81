"""A user's permission to begin an empty history if the database and its copy are lost: a file in the data directory.

``ringward up --new-history`` and ``ringward recover --new-history`` create it. A scheduler removes it as soon as it has
opened a database.
"""

import contextlib
import os


def new_history_allowed(data_dir: str) -> bool:
    """Return whether the permission exists."""
    return os.path.exists(_permission_path(data_dir))


def allow_new_history(data_dir: str, *, allowed: bool) -> None:
    """Give the permission, or withdraw it.

    Raises:
        OSError: the file cannot be created or removed.
    """
    if allowed:
        os.close(os.open(_permission_path(data_dir), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_permission_path(data_dir))


def _permission_path(data_dir: str) -> str:
    return f"{data_dir}/new-history"
