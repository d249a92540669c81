"""Close the standard descriptors and stay; end with status 7 on SIGTERM: closes_output.py PID_FILE."""

import os
import signal
import sys
from pathlib import Path

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.closerange(0, 3)
new = Path(f"{sys.argv[1]}.new")
new.write_text(str(os.getpid()))
new.replace(sys.argv[1])
signal.sigwait({signal.SIGTERM})
os._exit(7)
