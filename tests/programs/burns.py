"""Holds 64 MB and takes processor time, with three children; says "ready" first. All end with the main process.

One child stays, one has a session of its own, one has left its session and lost its parent.
"""

import os
import time

main = os.getpid()


def work() -> None:
    sum(range(100_000))
    time.sleep(0.1)  # what else runs on this host shall have most of it


def burn() -> None:
    while True:
        work()
        os.kill(main, 0)


def child(*, leaves: bool, orphan: bool = False) -> None:
    if started := os.fork():
        if orphan:
            os.waitpid(started, 0)  # whose child it becomes is gone before anybody looks
        return
    if leaves:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    if orphan and os.fork():
        os._exit(0)
    try:
        burn()
    except ProcessLookupError:
        os._exit(0)


child(leaves=False)
child(leaves=True)
child(leaves=True, orphan=True)
memory = bytearray(os.urandom(1 << 20) * 64)
print("ready", flush=True)
while memory:
    work()
