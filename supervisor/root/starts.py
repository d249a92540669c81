"""The two ways to start an instance: at once by ourselves, or by the spawner.

A process that joins its cgroup after a while in which none did waits about 10 ms for the kernel; then the spawner
(:mod:`.spawner`) is faster, which makes the process where it belongs. When many start, joining takes microseconds, and
a copy of the spawner costs more than posix_spawn(3). So the spawner is given a start if the one before was a while ago.

No run depends on the spawner. It tells us the pid of its process, which waits for our word, so nothing runs that we do
not know; when we have not heard that in time, for whatever reason, we hang up, which ends the process, and start the
instance ourselves.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from supervisor.logline import Log
from supervisor.messages import Frame, Spawn
from supervisor.root.ear import Ear
from supervisor.root.spawn import Plan, Started
from supervisor.root.spawner import MAX_MESSAGE_BYTES, Direct, Request
from supervisor.root.watch import Watch

_QUIET_S = 0.02
"""Since the last start: as long as the kernel takes to forget that processes join cgroups."""
_PATIENCE_S = 2.0
_AGAIN_S = 1.0
"""Between two spawners, at least; twice as long each time that one has ended soon, up to the longest."""
_LONGEST_S = 60.0
_SOON_S = 10.0
_END_S = 1.0
_NEVER = frozenset({errno.ENOSYS, errno.E2BIG, errno.EINVAL, errno.EPERM, errno.EACCES})
"""Why the kernel will not make processes in cgroups: too old, or a filter of system calls, or not delegated."""
_WORD_BYTES = 64
_PROGRAM = ["-I", "-m", "supervisor.root.spawner"]
_SPAWNER_FD = 3
_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class Start:
    """One that is under way."""

    __slots__ = ("ear", "plan", "remarks", "spawn", "stops")

    def __init__(self, spawn: Spawn, plan: Plan, ear: Ear | None, remarks: list[str]) -> None:
        self.spawn = spawn
        self.plan = plan
        self.ear = ear
        self.remarks = remarks
        """For the beginning of its log."""
        self.stops: list[Frame] = []
        """Stops that came meanwhile."""


class Starts:
    """Starts instances. Belongs to the control thread, and never waits.

    Args:
        watch: calls us.
        log: the daemon's.
        env: environment of the spawner.
        show: takes the read end of what the spawner prints.
        on_started: takes what was started.
        on_failed: takes what cannot be started, and why.
    """

    def __init__(
        self,
        watch: Watch,
        log: Log,
        env: dict[str, str],
        show: Callable[[int], None],
        on_started: Callable[[Start, Started], None],
        on_failed: Callable[[Start, str], None],
    ) -> None:
        self._watch = watch
        self._log = log
        self._env = env
        self._show = show
        self._on_started = on_started
        self._on_failed = on_failed
        self.under_way: dict[str, Start] = {}
        """By run id: the one that the spawner has, and those that came after it, since they begin in order."""
        self._channel: socket.socket | None = None
        """To the process of that one."""
        self._deadline_s: float | None = None
        self._last_s = 0.0
        """When a start into a cgroup was begun."""
        self.pid: int | None = None
        """Of the spawner."""
        self._pidfd = -1
        self._sock: socket.socket | None = None
        self._ready = False
        """Whether the spawner has come so far that it listens."""
        self._again_s = _AGAIN_S / 2
        self._launched_s = -self._again_s
        self._wake_at_s: float | None = None
        """When there is to be another one."""
        self._useful = True

    def begin(self, start: Start) -> None:
        """Start an instance; one of the two callbacks follows, mostly at once."""
        if self.under_way:
            self.under_way[start.spawn.run] = start
            return
        now_s = time.monotonic()
        quiet = now_s - self._last_s >= _QUIET_S
        if start.plan.cgroup is not None:
            self._last_s = now_s
        if not (quiet and self._give(start, now_s)):
            self._here(start)

    def wake(self) -> None:
        """Have a spawner, if there can be one: something is going to start in a cgroup."""
        now_s = time.monotonic()
        if self.pid is None and self._useful and now_s - self._launched_s >= self._again_s:
            self._launched_s = now_s
            self._wake_at_s = None
            self._launch()

    def next_s(self) -> float | None:
        """When :meth:`tend` is due (monotonic seconds)."""
        return min((at for at in (self._deadline_s, self._wake_at_s) if at is not None), default=None)

    def tend(self, now_s: float) -> None:
        """Do what is due (monotonic seconds)."""
        if self._deadline_s is not None and now_s >= self._deadline_s:
            self._log.warning(f"the spawner has done nothing for {_PATIENCE_S:g} s: killing it")
            if self.pid is not None:
                os.kill(self.pid, signal.SIGKILL)
            self._take_back()
        if self._wake_at_s is not None and now_s >= self._wake_at_s:
            self._wake_at_s = None
            self.wake()

    def close(self) -> None:
        """End the spawner; what it had under way will not run, and is not started otherwise."""
        for start in self.under_way.values():
            start.plan.close()
        self._hang_up()
        self._wake_at_s = None
        if self.pid is not None:
            self._disconnect()
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(_END_S * 1000):
                os.kill(self.pid, signal.SIGKILL)
                poll.poll(_END_S * 1000)
            self._reap()

    # One start.

    def _here(self, start: Start) -> None:
        try:
            started = start.plan.here()
        except (OSError, ValueError) as err:
            # ENOENT: no /bin/sh; E2BIG: arguments or environment too long; EMFILE, EAGAIN, ENOMEM: out of
            # descriptors, processes or memory; ValueError: a NUL byte. The reason stands in the run's own log.
            start.plan.close()
            self._on_failed(start, getattr(err, "strerror", None) or str(err))
            return
        self._on_started(start, started)

    def _give(self, start: Start, now_s: float) -> bool:
        """Give a start to the spawner; False when that is not possible."""
        if start.plan.cgroup is None:
            return False
        self.wake()
        message = _message(start.plan)
        if self._sock is None or not self._listens(self._sock) or message is None:
            return False
        try:
            with contextlib.ExitStack() as theirs:
                channel, their_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                theirs.callback(their_channel.close)
                self._channel = channel
                cgroup = os.open(start.plan.cgroup.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                theirs.callback(os.close, cgroup)
                fds = [their_channel.fileno(), cgroup, *start.plan.outputs_there()]
                socket.send_fds(self._sock, [message], fds, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:  # EAGAIN, EPIPE: it hangs or ends; EMFILE, ENOBUFS: the other way will tell
            self._hang_up()
            return False
        channel.setblocking(False)
        self.under_way[start.spawn.run] = start
        self._deadline_s = now_s + _PATIENCE_S
        self._watch.add(channel.fileno(), lambda _mask: self._on_word(start, channel))
        return True

    def _listens(self, sock: socket.socket) -> bool:
        if not self._ready:
            with contextlib.suppress(OSError):  # EAGAIN: not yet; ECONNRESET: it has ended
                self._ready = bool(sock.recv(1, socket.MSG_DONTWAIT))
        return self._ready

    def _on_word(self, start: Start, channel: socket.socket) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(channel, _WORD_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data, fds = b"", []
        if data.isdigit() and fds and _is_child(fds[0]):
            self._watch.remove(channel.fileno())
            with contextlib.suppress(OSError):  # EPIPE, ECONNRESET: killed; its pidfd tells
                channel.send(b"\0", socket.MSG_NOSIGNAL)
            self._channel = None
            del self.under_way[start.spawn.run]
            self._on_started(start, start.plan.there(int(data), fds[0], channel.detach()))
            self._take_back()
            return
        for fd in fds:
            os.close(fd)
        code = int(data.removeprefix(b"cannot ")) if data.startswith(b"cannot ") else 0
        if code in _NEVER:
            self._useful = False
            self._log.info(f"runs join their cgroups, since processes cannot be made there: {os.strerror(code)}")
            self._disconnect()
        self._take_back()

    def _take_back(self) -> None:
        """Whatever the spawner has made of what is still under way ends, and we start that ourselves."""
        starts = list(self.under_way.values())
        self._hang_up()
        for start in starts:
            self._last_s = time.monotonic()
            self._here(start)

    def _hang_up(self) -> None:
        """Nothing is under way any more: a process that has not been told to go on ends."""
        if self._channel is not None:
            if self.under_way:
                self._watch.remove(self._channel.fileno())
            self._channel.close()
            self._channel = None
        self.under_way.clear()
        self._deadline_s = None

    # The spawner.

    def _launch(self) -> None:
        try:
            with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
                sock, their_sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours.callback(sock.close)
                theirs.callback(their_sock.close)
                output, output_end = os.pipe2(os.O_CLOEXEC)
                ours.callback(os.close, output)
                theirs.callback(os.close, output_end)
                self.pid = self._execute(output_end, their_sock.fileno())
                self._pidfd = os.pidfd_open(self.pid)
                ours.pop_all()
        except OSError as err:  # EMFILE, EAGAIN, ENOMEM
            self._log.warning(f"the spawner cannot be started: {err}")
            if self.pid is not None:  # it runs, but we could not hold it
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.pid = None
            return
        os.set_blocking(output, False)
        self._show(output)
        self._sock = sock
        self._watch.add(self._pidfd, lambda _mask: self._on_exit())

    def _execute(self, output_end: int, sock: int) -> int:
        argv = [sys.executable, *_PROGRAM, "--fd", str(_SPAWNER_FD)]
        return os.posix_spawn(
            argv[0],
            argv,
            self._env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output_end, 1),
                (os.POSIX_SPAWN_DUP2, output_end, 2),
                (os.POSIX_SPAWN_DUP2, sock, _SPAWNER_FD),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=_SIGNALS,
        )

    def _on_exit(self) -> None:
        self._disconnect()
        code = self._reap()
        if self._useful:
            self._log.warning(f"the spawner ended with {f'signal {-code}' if code < 0 else f'exit status {code}'}")
            lasted = time.monotonic() - self._launched_s >= _SOON_S
            self._again_s = _AGAIN_S if lasted else min(2 * self._again_s, _LONGEST_S)
            self._wake_at_s = self._launched_s + self._again_s

    def _disconnect(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
            self._ready = False

    def _reap(self) -> int:
        """Reap the spawner, which has ended, if that may be done now; returns its exit status."""
        if self.pid is None:
            return 0
        self._watch.remove(self._pidfd)
        _, status = os.waitpid(self.pid, os.WNOHANG)
        os.close(self._pidfd)
        self.pid = None
        return os.waitstatus_to_exitcode(status)


def _message(plan: Plan) -> bytes | None:
    """The request for a plan; None when it is too large for a message, or cannot but fail, which posix_spawn tells."""
    size = sum(map(len, plan.argv_there)) + sum(len(name) + len(value) for name, value in plan.env.items())
    texts = [*plan.argv_there, *plan.env, *plan.env.values()]
    if size > MAX_MESSAGE_BYTES or any("\0" in text for text in texts) or any("=" in name for name in plan.env):
        return None
    env = [os.fsencode(f"{name}={value}") for name, value in plan.env.items()]
    argv = [os.fsencode(word) for word in plan.argv_there]
    message = Request.encode(argv, env, terminal=plan.terminal, direct=_direct(plan))
    return message if len(message) <= MAX_MESSAGE_BYTES else None


def _direct(plan: Plan) -> Direct | None:
    if not plan.paths:
        return None
    spawn = plan.spawn
    return Direct(
        paths=[os.fsencode(path) for path in plan.paths],
        argv=[os.fsencode(word) for word in spawn.argv],
        cwd=None if spawn.cwd is None else os.fsencode(spawn.cwd),
        umask=spawn.umask,
        nofile=plan.nofile,
    )


def _is_child(pidfd: int) -> bool:
    """Whether a process is a child of ours that nobody has reaped."""
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # ECHILD: it was killed, and reaped with the strangers
        return False
    return True
