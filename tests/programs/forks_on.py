"""Change the process id all the time: forks_on.py PID_FILE GENERATIONS.

Each generation forks the next one, in a session of its own, and ends at once; the last one sleeps. The main process
waits. The pid of the newest is in the file.
"""

import os
import signal
import sys

path, generations = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.fork():
    for _ in range(generations):
        if os.fork():
            os._exit(0)
        os.setsid()
        with open(path + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".new", path)
os.write(1, b"ready\n")
while True:
    signal.pause()
