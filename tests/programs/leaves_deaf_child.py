"""End on SIGTERM, and leave a child behind that ignores it and holds the pipes open."""

import signal
import subprocess
import sys
from pathlib import Path

child = subprocess.Popen([sys.executable, "-I", str(Path(__file__).parent / "ignores_term.py")])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    signal.pause()
