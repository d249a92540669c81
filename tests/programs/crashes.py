"""Live for a moment, print something, perhaps leave processes behind, and end somehow: crashes.py DIRECTORY MOST_S.

All that it does is noted before it is done, in files of DIRECTORY that are named after the run: RUN.1 and RUN.2 have
the bytes of standard output and standard error, RUN.notes has lines: ``instance N``, ``left PID``, and in the end
``exit STATUS`` or ``signal NUMBER``. Nothing that is left behind obeys SIGTERM.
"""

import os
import random
import resource
import signal
import sys
import time

ENDS = [("exit", status) for status in (0, 1, 2, 3, 77, 126, 127, 255)]
ENDS += [("signal", number) for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, 34)]
TEXTS = (
    b"plain\n",
    b"\ttabs\x00and zeros\n",
    b"\xff\xfe no utf-8\r\n",
    b"\n\n\n",
    b"x" * 20_000 + b"\n",
    b"unfinished",
)

directory, most_s = sys.argv[1], float(sys.argv[2])
base = f"{directory}/{os.environ['RINGWARD_RUN_ID']}"
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
chance = random.Random()


def write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def append(name: str, data: bytes) -> None:
    fd = os.open(f"{base}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write(fd, data)
    os.close(fd)


def note(subject: str, number: int | str) -> None:
    append("notes", f"{subject} {number}\n".encode())


def say() -> None:
    fd = chance.choice((1, 1, 2))
    data = b"".join(chance.choices(TEXTS, k=chance.randrange(1, 6)))
    append(str(fd), data)
    write(fd, data)


def leave(*, session: bool, orphan: bool, silent: bool) -> None:
    """Start a process that stays, and wait until it has begun its work."""
    done, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os.read(done, 1)
        os.close(done)
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if session:
        os.setsid()
    if orphan and os.fork():
        os._exit(0)
    note("left", os.getpid())
    say()
    if silent:
        for fd in (0, 1, 2):
            os.close(fd)
    os.close(tell)
    while True:
        signal.pause()


note("instance", os.environ["RINGWARD_INSTANCE"])
end_s = time.monotonic() + chance.random() * most_s
while True:
    if chance.random() < 0.7:
        say()
    if chance.random() < 0.2:
        leave(session=chance.random() < 0.5, orphan=chance.random() < 0.5, silent=chance.random() < 0.5)
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        break
    time.sleep(min(left_s, chance.random() * most_s / 2))
how, number = chance.choice(ENDS)
note(how, int(number))
if how == "exit":
    os._exit(number)
os.kill(os.getpid(), number)
signal.pause()
