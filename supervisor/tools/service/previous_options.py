"""Finds the options of an earlier installation, because installing with other options would undo part of it."""

import os
import re
from collections.abc import Sequence

from supervisor.tools.service.plan import InstallOptions
from supervisor.tools.service.plan_files import ComparedFile, path_below
from supervisor.tools.service.systemd_plan import HARDENING, UNIT

_USER = re.compile(r"^(?:User=|command_user=|install -d -m 0700 -o )([^:\s]+)", re.MULTILINE)
"""The user of the daemon in the files for each init system."""
_MAX_CHARS = 1 << 20


def forgotten(current: InstallOptions, files: Sequence[ComparedFile], root: str) -> list[str]:
    """Return the options of ``service install`` with which the existing files were written and which `current` lacks.

    Raises:
        OSError: a file cannot be read.
    """
    there = [file.path for file in files if file.state in ("older", "changed") and os.path.exists(file.path)]
    users = {user for path in there for user in _USER.findall(_text(path))}
    options = [f"--user {user}" for user in sorted(users - {current.user})]
    for_systemd = any(compared.file.path == UNIT for compared in files)
    if for_systemd and not current.hardened and os.path.lexists(path_below(root, HARDENING)):
        options.append("--hardened")
    return options


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(_MAX_CHARS)
