"""Leave a daemon behind whose memory cannot be read: holds_memory.py FILE DIRECTORY.

FILE is on a file system that is frozen before DIRECTORY/frozen appears. One thread waits for it then in the middle of
a write to a page of that file, and another one for that thread, with the lock of the whole memory in its hands. The
pid is in DIRECTORY/pid; this ends when DIRECTORY/go appears.
"""

import ctypes
import os
import sys
import threading
import time

_SIZE = 1 << 20
_READ_WRITE, _SHARED = 3, 1
path, directory = sys.argv[1:]
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p


def waits() -> bool:
    """Whether a thread of this process waits for the disk."""
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/stat") as stat:
            if ") D " in stat.read():
                return True
    return False


def await_file(name: str) -> None:
    while not os.path.exists(f"{directory}/{name}"):
        time.sleep(0.01)


if os.fork():
    await_file("go")
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, _SIZE)
address = libc.mmap(None, _SIZE, _READ_WRITE, _SHARED, fd, 0)
ctypes.string_at(address, _SIZE)
with open(f"{directory}/pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"{directory}/pid.new", f"{directory}/pid")
os.closerange(0, 100)
await_file("frozen")
threading.Thread(target=ctypes.memset, args=(address, 1, 1)).start()
while not waits():
    time.sleep(0.01)
libc.munmap(ctypes.c_void_p(address), _SIZE)
os._exit(0)
