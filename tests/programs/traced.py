"""Trace a child that stops, and end on SIGTERM without letting go of it: traced.py PID_FILE.

The child obeys nothing but SIGKILL while its tracer does not continue it.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PTRACE_TRACEME = 0

child = os.fork()
if not child:
    os.setsid()
    ctypes.CDLL(None).ptrace(_PTRACE_TRACEME, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, os.WUNTRACED)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
Path(sys.argv[1]).write_text(str(child))
os.write(1, b"ready\n")
signal.sigwait({signal.SIGTERM})
os._exit(0)
