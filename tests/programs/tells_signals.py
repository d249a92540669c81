"""Print the name of each signal that is asked for, and end at none of them: tells_signals.py SIGNAL SIGNAL."""

import os
import signal
import sys


def tell(number: int, _frame: object) -> None:
    os.write(1, f"{signal.Signals(number).name}\n".encode())


for name in sys.argv[1:]:
    signal.signal(signal.Signals[name], tell)
os.write(1, b"ready\n")
while True:
    signal.pause()
