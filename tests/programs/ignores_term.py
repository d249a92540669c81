"""Ignore SIGTERM and stay: only SIGKILL ends this."""

import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
