"""Which processes get a signal that is meant for a run."""

import os
import signal
import subprocess
import sys

import pytest

from supervisor.root.instances import Instance
from supervisor.root.tree import Trees
from tests.root.test_control import spawn

_LATE = "import os, sys; sys.stdin.read(1); os.setsid(); print(flush=True); sys.stdin.read()"


def test_a_group_that_is_made_in_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new process gets its group a moment after we know it: a stop in between reaches it all the same."""
    killpg = os.killpg
    with subprocess.Popen([sys.executable, "-I", "-c", _LATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as late:
        assert late.stdin is not None
        assert late.stdout is not None
        stdin, stdout = late.stdin, late.stdout

        def too_early(group: int, number: int) -> None:
            try:
                killpg(group, number)
            finally:
                stdin.write(b"x")
                stdin.flush()
                stdout.readline()

        monkeypatch.setattr(os, "killpg", too_early)
        instance = Instance(spawn("R"), late.pid, os.pidfd_open(late.pid), 1, None)
        Trees("D", set, print).signal(instance, signal.SIGTERM, signal.SIGCONT)
        os.close(instance.pidfd)
        assert late.wait(60) == -signal.SIGTERM
