"""Start children and grandchildren, half of them in sessions of their own, all of them deaf to SIGTERM: deaf_tree.py.

Prints the pid of each, and "ready" when all are there.
"""

import os
import signal

for number in range(4):
    if not os.fork():
        if number % 2:
            os.setsid()
        os.fork()
        break
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, f"{os.getpid()}\n".encode())
while True:
    signal.pause()
