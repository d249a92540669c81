"""End with status 5 on SIGTERM, after a last line."""

import os
import signal
import sys


def end(*_: object) -> None:
    # Not print, which a signal may have interrupted at its work.
    os.write(1, b"bye\n")
    sys.exit(5)


signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    signal.pause()
