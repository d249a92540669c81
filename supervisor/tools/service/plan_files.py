"""Writes and removes the files of a plan, without losing changes of the user."""

import contextlib
import difflib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.host.files import make_parents
from supervisor.tools.service.plan import NAME, File, Plan, unchanged

_MAX_CHARS = 1 << 20


@dataclass(frozen=True)
class ComparedFile:
    """A file of a plan, compared with the existing file.

    The state is ``new`` (there is no file), ``same``, ``older`` (another installation wrote it) or ``changed``.
    """

    file: File
    path: str
    """The path of the file, including the root."""
    state: str
    diff: str = ""
    """A unified diff from the existing to the planned content; empty for new and same files."""


class ChangedByUser(Exception):
    """The user has changed files that would be replaced or removed.

    Args:
        files: The changed files.
    """

    def __init__(self, files: Sequence[ComparedFile]) -> None:
        super().__init__(", ".join(file.path for file in files))
        self.files = tuple(files)


def path_below(root: str, path: str) -> str:
    """Return an absolute path below another root."""
    return os.path.join(root, path.lstrip("/"))


def read_present(plan: Plan, root: str) -> list[ComparedFile]:
    """Compare the files of a plan with the existing files.

    Raises:
        OSError: a file cannot be read.
    """
    return [_compare(file, path_below(root, file.path)) for file in plan.files]


def _compare(file: File, path: str) -> ComparedFile:
    if not os.path.lexists(path):
        return ComparedFile(file, path, "new")
    with contextlib.suppress(FileNotFoundError):  # a dangling symbolic link
        with open(path, encoding="utf-8", errors="replace") as there:
            text = there.read(_MAX_CHARS)
        if text == file.text:
            return ComparedFile(file, path, "same")
        lines = difflib.unified_diff(text.splitlines(), file.text.splitlines(), path, "new", lineterm="")
        own = unchanged(text) and not os.path.islink(path)
        return ComparedFile(file, path, "older" if own else "changed", "\n".join(lines))
    return ComparedFile(file, path, "changed", f"{path} is a broken link")


def write(files: Sequence[ComparedFile], *, force: bool) -> list[ComparedFile]:
    """Write the files that are missing or differ; return the written files.

    Raises:
        ChangedByUser: the user has changed files and `force` is false. Then nothing is written.
        OSError: a file cannot be written.
    """
    changed = [file for file in files if file.state == "changed"]
    if changed and not force:
        raise ChangedByUser(changed)
    to_write = [file for file in files if file.state != "same"]
    for compared in to_write:
        put(compared.path, compared.file)
    return to_write


def put(path: str, file: File) -> None:
    """Write a file atomically, so that no reader sees an incomplete file.

    Raises:
        OSError: the file cannot be written.
    """
    make_parents(path)
    temporary = f"{path}.{os.getpid()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as output:
            output.write(file.text)
            os.fchmod(fd, file.mode)
        os.replace(temporary, path)
    except BaseException:  # including Ctrl-C: no temporary file must remain
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def remove(plan: Plan, root: str, files: Sequence[ComparedFile], *, force: bool) -> list[ComparedFile]:
    """Remove the existing files, and Ringward's directories that become empty; return the removed files.

    Raises:
        ChangedByUser: the user has changed files and `force` is false. Then nothing is removed.
        OSError: a file cannot be removed.
    """
    changed = [file for file in files if file.state == "changed"]
    if changed and not force:
        raise ChangedByUser(changed)
    gone = [file for file in files if file.state != "new"]
    for compared in gone:
        os.unlink(compared.path)
    for path in plan.state:
        shutil.rmtree(path_below(root, path), ignore_errors=True)
    own = {path for path in (os.path.dirname(compared.file.path) for compared in gone) if f"/{NAME}" in path}
    for path in sorted(own, key=len, reverse=True):
        with contextlib.suppress(OSError):  # ENOTEMPTY: the directory contains other files
            os.rmdir(path_below(root, path))
    return gone
