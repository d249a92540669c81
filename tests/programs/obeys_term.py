"""End with status 5 on SIGTERM, after a last line."""

import signal
import sys


def end(*_: object) -> None:
    print("bye", flush=True)
    sys.exit(5)


signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    signal.pause()
