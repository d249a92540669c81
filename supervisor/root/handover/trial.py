"""Trying the version that is installed, before the one that runs gives up anything for it.

The trial is ``python -m supervisor.root --check FD``: another process, which takes the whole table up and loads what
the scheduler and the API server consist of, and ends. What it prints at last is why it does not work.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable

from supervisor.host.signal_sets import CATCHABLE
from supervisor.root.loop.epoll_watch import EpollWatch

LIMIT_S = 60.0
_MAX_OUTPUT = 65536
_MAX_WHY = 500


class Trial:
    """One such process.

    Args:
        table: descriptor with what is to be handed over; closed here.
        keep: descriptors that the table speaks of.
        then: called with None when the version can be executed, else with the reason why not.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, watch: EpollWatch, env: dict[str, str], table: int, keep: set[int], then: Callable[[str | None], None]
    ) -> None:
        self._watch = watch
        self._then = then
        self._output = b""
        self.due_s = time.monotonic() + LIMIT_S
        """When :meth:`end` is due, for want of an answer."""
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-m", "supervisor.root", "--check", str(table)],
                env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, writing, 1),
                    (os.POSIX_SPAWN_DUP2, writing, 2),
                    *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in sorted({table, *keep})),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=CATCHABLE,
            )
        except OSError:
            os.close(self._reading)
            raise
        finally:
            os.close(table)
            os.close(writing)
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            os.killpg(self.pid, signal.SIGKILL)
            os.close(self._reading)
            raise
        watch.add(self._pidfd, lambda _mask: self._ended())
        watch.add(self._reading, lambda _mask: self._read())

    def _read(self) -> None:
        try:
            data = os.read(self._reading, _MAX_OUTPUT)
        except BlockingIOError:
            return
        self._output = (self._output + data)[-_MAX_OUTPUT:]
        if not data:
            self._watch.remove(self._reading)
            os.close(self._reading)
            self._reading = -1

    def _ended(self) -> None:
        self._let_go()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if status == 0:
            self._then(None)
            return
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        self._then(_reason(self._output.decode(errors="replace")) or f"it ended with {how} and said nothing")

    def _let_go(self) -> None:
        self._watch.remove(self._pidfd)
        os.close(self._pidfd)
        if self._reading >= 0:
            poll = select.poll()
            poll.register(self._reading, select.POLLIN)
            if poll.poll(0):
                self._read()
        if self._reading >= 0:
            self._watch.remove(self._reading)
            os.close(self._reading)
            self._reading = -1

    def end(self) -> None:
        """Kill it; `then` is not called. It is not reaped here, since it may hang on a disk."""
        os.killpg(self.pid, signal.SIGKILL)
        self._let_go()


def _reason(output: str) -> str:
    """What was said last; of an error in Python, also where."""
    lines = [line.strip() for line in output.strip().splitlines()]
    places = [line for line in lines if line.startswith("File ")]
    return ": ".join(filter(None, (places[-1] if places else "", lines[-1] if lines else "")))[:_MAX_WHY]
