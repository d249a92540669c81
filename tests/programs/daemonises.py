"""Become a daemon as in the book, and go: daemonises.py PID_FILE [bare].

Forks twice, in a session of its own, with all its descriptors closed; `bare` empties its environment, too. The pid of
what stays is in the file before this ends.
"""

import fcntl
import os
import sys

path, bare = sys.argv[1], sys.argv[2:] == ["bare"]
if os.fork():
    os.wait()
    sys.exit(0)
os.setsid()
reads, writes = os.pipe()
if stays := os.fork():
    os.close(writes)
    os.read(reads, 1)  # its end: the other is a sleep by now
    with open(path + ".new", "w") as file:
        file.write(str(stays))
    os.rename(path + ".new", path)
    os._exit(0)
fcntl.fcntl(writes, fcntl.F_DUPFD_CLOEXEC, 100)
os.closerange(0, 100)
if bare:
    os.execve("/bin/sleep", ["sleep", "1000"], {})
os.execv("/bin/sleep", ["sleep", "1000"])
