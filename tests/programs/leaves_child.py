"""Leave a child behind that holds the pipes open: leaves_child.py [deaf].

Exits at once. With ``deaf`` it exits on SIGTERM, and the child ignores SIGTERM.
"""

import signal
import subprocess
import sys
from pathlib import Path

deaf = sys.argv[1:] == ["deaf"]
ignores_term = [sys.executable, "-I", str(Path(__file__).parent / "ignores_term.py")]
child = subprocess.Popen(ignores_term if deaf else ["sleep", "1000"])
if deaf:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.sigwait({signal.SIGTERM})
else:
    print(child.pid, flush=True)
