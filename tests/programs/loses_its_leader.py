"""Leave a process of a session of its own, whose first thread has ended while another one goes on: PID_FILE.

To the kernel such a process is a zombie with a living thread; it obeys nothing but SIGKILL.
"""

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if not os.fork():
    os.setsid()

    def go_on() -> None:
        """Once the first thread is a zombie."""
        while " Z " not in Path(f"/proc/{os.getpid()}/stat").read_text():
            pass
        Path(sys.argv[1]).write_text(str(os.getpid()))
        os.write(1, b"ready\n")
        threading.Event().wait()

    threading.Thread(target=go_on).start()
    ctypes.CDLL(None).pthread_exit(None)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
while True:
    signal.pause()
