"""Writing the files of a plan, and removing them; changes by the user are never lost."""

import contextlib
import difflib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.startup.parent_directories import make_parents
from supervisor.tools.service.plan import NAME, File, Plan, unchanged

_MAX_CHARS = 1 << 20


@dataclass(frozen=True)
class Found:
    """A file of a plan, and the present content of its place.

    State: ``new`` (there is nothing), ``same``, ``older`` (as another installation has written it), or ``changed``.
    """

    file: File
    place: str
    """Where it is, below the root."""
    state: str
    diff: str = ""
    """Unified diff from the present to the planned content; empty for new and same files."""


class Changed(Exception):
    """The user's changed files are in the way.

    Args:
        files: the changed files.
    """

    def __init__(self, files: Sequence[Found]) -> None:
        super().__init__(", ".join(one.place for one in files))
        self.files = tuple(files)


def below(root: str, path: str) -> str:
    """An absolute path as it is below another root."""
    return os.path.join(root, path.lstrip("/"))


def look(plan: Plan, root: str) -> list[Found]:
    """Return the present content of a plan's files.

    Raises:
        OSError: a file cannot be read.
    """
    return [_look(file, below(root, file.path)) for file in plan.files]


def _look(file: File, place: str) -> Found:
    if not os.path.lexists(place):
        return Found(file, place, "new")
    with contextlib.suppress(FileNotFoundError):  # a link that leads nowhere
        with open(place, encoding="utf-8", errors="replace") as there:
            text = there.read(_MAX_CHARS)
        if text == file.text:
            return Found(file, place, "same")
        lines = difflib.unified_diff(text.splitlines(), file.text.splitlines(), place, "new", lineterm="")
        own = unchanged(text) and not os.path.islink(place)
        return Found(file, place, "older" if own else "changed", "\n".join(lines))
    return Found(file, place, "changed", f"{place} is a broken link")


def write(found: Sequence[Found], *, force: bool) -> list[Found]:
    """Write the missing files; return the written ones. Writes all or, when a file was changed, none.

    Raises:
        Changed: and not `force`.
        OSError: something cannot be written.
    """
    changed = [one for one in found if one.state == "changed"]
    if changed and not force:
        raise Changed(changed)
    to_write = [one for one in found if one.state != "same"]
    for one in to_write:
        put(one.place, one.file)
    return to_write


def put(place: str, file: File) -> None:
    """Write a file so that no reader ever sees half of it.

    Raises:
        OSError: it cannot be written.
    """
    make_parents(place)
    temporary = f"{place}.{os.getpid()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as output:
            output.write(file.text)
            os.fchmod(fd, file.mode)
        os.replace(temporary, place)
    except BaseException:  # Ctrl-C, too, leaves nothing half made
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def remove(plan: Plan, root: str, found: Sequence[Found], *, force: bool) -> list[Found]:
    """Remove the files that are there, and directories of ours that are empty then; returns the files that are gone.

    Raises:
        Changed: and not `force`: then nothing is removed.
        OSError: something cannot be removed.
    """
    changed = [one for one in found if one.state == "changed"]
    if changed and not force:
        raise Changed(changed)
    gone = [one for one in found if one.state != "new"]
    for one in gone:
        os.unlink(one.place)
    for path in plan.state:
        shutil.rmtree(below(root, path), ignore_errors=True)
    own = {path for path in (os.path.dirname(one.file.path) for one in gone) if f"/{NAME}" in path}
    for path in sorted(own, key=len, reverse=True):
        with contextlib.suppress(OSError):  # ENOTEMPTY: the directory has other files
            os.rmdir(below(root, path))
    return gone
