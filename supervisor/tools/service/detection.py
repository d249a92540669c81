"""Detects the init system of a host, and the directory in which it looks for services."""

import contextlib
import os
from collections.abc import Sequence

KINDS = ("systemd", "openrc", "s6", "runit")


def detect(root: str = "/") -> str | None:
    """Return the init system; None if it cannot be detected.

    Args:
        root: The root of the file system.
    """
    if os.path.isdir(os.path.join(root, "run/systemd/system")):  # the test of sd_booted(3)
        return "systemd"
    if os.path.isdir(os.path.join(root, "run/openrc")):
        return "openrc"
    first = ""
    with contextlib.suppress(OSError), open(os.path.join(root, "proc/1/comm"), encoding="ascii") as file:
        first = file.read().strip()
    # s6 and runit can also run below a container's process 1 or another init system.
    names = {first} | _running(root)
    return next((kind for kind, name in (("s6", "s6-svscan"), ("runit", "runsvdir")) if name in names), None)


def _running(root: str) -> set[str]:
    """Return the names of all processes."""
    names = set()
    proc = os.path.join(root, "proc")
    with contextlib.suppress(FileNotFoundError):
        for pid in filter(str.isdecimal, os.listdir(proc)):
            with (
                contextlib.suppress(OSError),  # the process has ended
                open(os.path.join(proc, pid, "comm"), encoding="utf-8", errors="replace") as file,
            ):
                names.add(file.read().strip())
    return names


def scan_directory(candidates: Sequence[str], root: str = "/") -> str:
    """Return the first existing directory of the candidates, or else the first candidate."""
    there = (candidate for candidate in candidates if os.path.isdir(os.path.join(root, candidate.lstrip("/"))))
    return next(there, candidates[0])
