"""One attempt to see whether a service does its work, by a command of its own.

It is a process group of its own, which is killed when the main process has ended or its time is over. Nobody waits for
what does not die even then; it is reaped whenever it does.
"""

import asyncio
import contextlib
import os
import signal
import subprocess

from logring.mask import Mask
from supervisor.watcher.attempts import NotYet
from supervisor.watcher.order import Order

_REAP_S = 1.0
_TAIL_BYTES = 4096
_SHOWN = 200


async def command(order: Order) -> None:
    """The command ends with exit status 0.

    Raises:
        NotYet: it does not, or cannot be started; says the last line that it printed.
    """
    attempt = _Attempt(order)
    try:
        status = await attempt.ended
        said = attempt.last_line()
    finally:
        attempt.close()
    if status != 0:
        how = f"is killed by signal {-status}" if status < 0 else f"ends with {status}"
        raise NotYet(f"{order.argv[0]} {how}: {said}" if said else f"{order.argv[0]} {how}")


async def reaped() -> None:
    """All commands that were ended are gone; or most of them, after a second."""
    if _unreaped:
        await asyncio.wait(_unreaped, timeout=_REAP_S)


_unreaped: set[asyncio.Future[None]] = set()


class _Attempt:
    """A command that runs.

    Raises:
        NotYet: it cannot be started.
    """

    def __init__(self, order: Order) -> None:
        self._loop = asyncio.get_running_loop()
        self._mask = Mask(order.env[name].encode("utf-8", "surrogateescape") for name in order.secrets)
        self._tail = b""
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """Its exit status, or a signal as a negative number."""
        self._output, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                order.argv,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                env=order.env,
                cwd=order.cwd,
                user=order.uid,
                group=order.gid if order.uid is not None else None,
                extra_groups=order.groups if order.uid is not None else None,
                umask=-1 if order.umask is None else order.umask,
                start_new_session=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as err:
            os.close(self._output)
            raise NotYet(f"{order.argv[0]} cannot be executed: {getattr(err, 'strerror', None) or err}") from err
        finally:
            os.close(theirs)
        self._pidfd = os.pidfd_open(self._process.pid)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._readable)
        self._loop.add_reader(self._pidfd, self._exited)

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._output, 65536)
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            if not data:
                self._loop.remove_reader(self._output)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        # Not reaped yet: its id is that of its group, and nobody else's.
        found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        if found is not None and not self.ended.done():
            self.ended.set_result(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)

    def last_line(self) -> str:
        """What it printed last."""
        self._readable()
        lines = self._mask.clean(self._tail).decode(errors="replace").strip().splitlines()
        return "".join(char if char.isprintable() else " " for char in lines[-1])[:_SHOWN] if lines else ""

    def close(self) -> None:
        """End what is left of it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # ESRCH; EPERM: it became another user's
            os.killpg(self._process.pid, signal.SIGKILL)
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._loop.remove_reader(self._pidfd)
        gone: asyncio.Future[None] = self._loop.create_future()
        _unreaped.add(gone)
        self._loop.add_reader(self._pidfd, lambda: self._reap(gone))

    def _reap(self, gone: asyncio.Future[None]) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        _unreaped.discard(gone)
        gone.set_result(None)
