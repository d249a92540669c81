"""The file that a daemon has as its SQLite database: which one it is, and what is wrong with it.

========================  ===============================================================================
``database``              which file the schedulers of this daemon have open, in the runtime directory
``database.problem``      why nothing can be stored until a person acts, there as well: API workers read it
========================  ===============================================================================
"""

import contextlib
import json
import os

from store.recovery.replaced_files import NO_FILE, File
from supervisor.ipc.messages import Boot

REPLACED = "move that file away to go on with the history before, or restart the daemon to go on with that file"
"""What a person can do about a database in whose place there is another one."""


def note_file(boot: Boot, file: File) -> None:
    """Note which file is the database from now on.

    Raises:
        OSError: it cannot be noted.
    """
    _write(_place(boot), {"daemon": boot.started_at, "file": file})


def noted_file(boot: Boot) -> File:
    """Return the file that an earlier scheduler of this daemon had as its database; zeros: none is known."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(_place(boot), encoding="utf-8") as file:
        found = json.load(file)
        if found["daemon"] == boot.started_at:
            device, inode = found["file"]
            return int(device), int(inode)
    return NO_FILE


def forget_file(boot: Boot) -> None:
    """Whatever file has the name next is the database."""
    _remove(_place(boot))


def tell_problem(boot: Boot, summary: str, detail: str) -> None:
    """Have API workers say what is wrong; the summary to everybody, the detail to those who may see it.

    Raises:
        OSError: it cannot be written.
    """
    _write(boot.database_problem, {"daemon": boot.started_at, "summary": summary, "detail": detail})


def no_problem(boot: Boot) -> None:
    """Have them say it no more."""
    _remove(boot.database_problem)


def forget_all(boot: Boot) -> None:
    """Leave nothing of it when the daemon ends."""
    forget_file(boot)
    no_problem(boot)


def _place(boot: Boot) -> str:
    return f"{boot.runtime_dir}/database"


def _write(path: str, content: dict[str, object]) -> None:
    new = f"{path}.new"
    with open(new, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o644)  # the directory is for us and the user of the API workers alone
        json.dump(content, file)
    os.replace(new, path)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
