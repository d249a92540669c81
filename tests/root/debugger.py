"""A tracer that delays the reaping of a process, like a debugger that does not wait for it."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

_PYTHON = sys.executable
_TRACER = """
import ctypes, sys
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
print(ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True)  # PTRACE_SEIZE
sys.stdin.read()
"""


@contextlib.contextmanager
def traced(pid: int) -> Iterator[None]:
    """Trace a process inside the block: it can exit, but only the tracer can reap it."""
    argv = [_PYTHON, "-c", _TRACER, str(pid)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tracer:
        assert tracer.stdout is not None
        if tracer.stdout.readline() != b"0\n":
            pytest.skip("processes may not be traced here")
        yield
        tracer.communicate()
