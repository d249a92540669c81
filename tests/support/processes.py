"""Processes that tests start."""

import subprocess
from pathlib import Path

from tests.support.waiting import until


def until_environment(child: subprocess.Popen[bytes]) -> None:
    """Wait until others can read the environment of a process, which may be shortly after its creation has returned."""
    until(Path(f"/proc/{child.pid}/environ").read_bytes, "the environment of a new process")
