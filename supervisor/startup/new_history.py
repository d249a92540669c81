"""A person's word that a new history may begin where the database and its copy are lost: a file in the data directory.

``ringward up --new-history`` and ``ringward recover --new-history`` make it. A scheduler acts on it, and removes it as
soon as it has a database.
"""

import contextlib
import os


def new_history_allowed(data_dir: str) -> bool:
    """Return whether a person has said so."""
    return os.path.exists(_place(data_dir))


def allow_new_history(data_dir: str, *, allowed: bool) -> None:
    """Say so, or take it back.

    Raises:
        OSError: that cannot be noted.
    """
    if allowed:
        os.close(os.open(_place(data_dir), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_place(data_dir))


def _place(data_dir: str) -> str:
    return f"{data_dir}/new-history"
