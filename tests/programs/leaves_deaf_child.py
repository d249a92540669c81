"""End on SIGTERM, and leave a child behind that ignores it and holds the pipes open."""

import signal
import subprocess
import sys
from pathlib import Path

child = subprocess.Popen([sys.executable, "-I", str(Path(__file__).parent / "ignores_term.py")])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
signal.sigwait({signal.SIGTERM})
