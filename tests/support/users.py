"""A daemon that runs as root, on a host with a user for its API workers; files of the host stay unchanged.

A private mount namespace has other lists of users and groups. The program and its Python may be in a directory that
only root can enter, such as /root. A directory with only these files, which all users can enter, replaces it.
"""

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from tests.support.daemon import Daemon
from tests.support.frozen import in_namespace
from tests.support.paths import ROOT

NAME = "ringward"
UID = 64321
_STAGE = "/mnt"


class Apart(Daemon):
    """A daemon in such a mount namespace.

    Args:
        directory: A directory that all users can enter.
        user: Whether the host has the user.
    """

    def __init__(self, directory: Path, *, user: bool = True) -> None:
        super().__init__(directory)
        self._mounts = _lists(directory) if user else []
        self._mounts += _way_in([Path(sys.base_prefix), Path(sys.prefix), ROOT])

    def command(self) -> list[str]:
        script = " && ".join(["true", *self._mounts, 'exec "$@"'])
        return [*in_namespace(), "sh", "-c", script, "sh", *super().command()]

    def bind(self, directory: Path, place: Path) -> None:
        """Have another directory in that place, from the next start on."""
        self.mount(f"mount --bind {directory} {place}")

    def mount(self, command: str) -> None:
        """Have this command change the mounts before the next start."""
        self._mounts.append(command)

    def uids(self, title: str) -> set[int]:
        """Return all user ids of our processes with this title."""
        uids: set[int] = set()
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                if title in " ".join(process.cmdline()):
                    uids.update(process.uids())
        return uids


def _lists(directory: Path) -> list[str]:
    commands = []
    for name, line in (("passwd", f"{NAME}:x:{UID}:{UID}::/nonexistent:/bin/false"), ("group", f"{NAME}:x:{UID}:")):
        own = directory / name
        own.write_text(f"{Path('/etc', name).read_text().rstrip()}\n{line}\n")
        own.chmod(0o644)
        commands.append(f"mount --bind {own} /etc/{name}")
    return commands


def _way_in(needed: list[Path]) -> list[str]:
    """Return commands that give all users access to these directories."""
    closed: dict[Path, list[Path]] = {}
    for path in needed:
        above = next((parent for parent in reversed(path.parents) if not _lets_in(parent)), None)
        if above is not None:
            closed.setdefault(above, []).append(path)
    commands = [f"mount -t tmpfs -o mode=755 tmpfs {_STAGE}"] if closed else []
    for number, (directory, inside) in enumerate(closed.items()):
        stages = {path: f"{_STAGE}/{number}-{index}" for index, path in enumerate(inside)}
        commands += [f"mkdir {stage} && mount --bind {path} {stage}" for path, stage in stages.items()]
        commands.append(f"mount -t tmpfs -o mode=755 tmpfs {directory}")
        commands += [f"mkdir -p {path} && mount --bind {stage} {path}" for path, stage in stages.items()]
    return commands


def _lets_in(directory: Path) -> bool:
    return bool(directory.stat().st_mode & stat.S_IXOTH)


def why_not() -> str | None:
    """Return why such a daemon cannot run here, or None."""
    if os.geteuid():
        return "other users take root"
    with tempfile.TemporaryDirectory() as directory:
        command = [*in_namespace(), "mount", "-t", "tmpfs", "tmpfs", directory]
        try:
            tried = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as err:
            return f"{err.filename} is not installed"
    return None if tried.returncode == 0 else f"nothing can be mounted: {tried.stderr.strip()}"
