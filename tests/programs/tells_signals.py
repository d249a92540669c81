"""Print the name of each signal that is asked for, and end at none of them: tells_signals.py SIGNAL SIGNAL."""

import os
import signal
import sys

signals = {signal.Signals[name] for name in sys.argv[1:]}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
os.write(1, b"ready\n")
while True:
    os.write(1, f"{signal.Signals(signal.sigwait(signals)).name}\n".encode())
