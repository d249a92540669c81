"""The pre-forked child: a process that the zygote (:mod:`.zygote`) has created in a cgroup, and that can become a run.

No run depends on the zygote or its child. The child sends its pid, receives a plan, and executes it only when told so,
so no unknown process ever runs. If the child does not answer in time, the root closes the channel and the child exits.
"""

import contextlib
import functools
import os
import signal
import socket
from collections.abc import Callable
from errno import E2BIG, EACCES, EINVAL, ENOSYS, EPERM

from supervisor.host.cgroups import Cgroup
from supervisor.host.osport import receive_fds
from supervisor.host.pidfds import has_ended
from supervisor.ipc import child_process
from supervisor.ipc.log_line import Log
from supervisor.root.loop.epoll_watch import EpollWatch
from supervisor.root.process.cgroup_manager import CgroupManager
from supervisor.root.spawn.posix_spawn import SpawnPlan, StartedProcess
from supervisor.root.spawn.zygote import MAX_MESSAGE_BYTES, ChildPlan, DirectCommand

_PATIENCE_S = 2.0
_RESTART_S = 1.0
"""The least time between the starts of two zygotes. It doubles, up to the maximum, each time a zygote ends early."""
_MOST_RESTART_S = 60.0
_STABLE_S = 10.0
_END_S = 1.0
_UNSUPPORTED = frozenset({ENOSYS, E2BIG, EINVAL, EPERM, EACCES})
"""Errors if no process can be created in a cgroup: an old kernel, a system call filter, or no delegation."""
_MESSAGE_BYTES = 64


class _Child:
    """A pre-forked child, which is ready once it has a pidfd."""

    __slots__ = ("cgroup", "channel", "deadline_s", "pid", "pidfd")

    def __init__(self, cgroup: Cgroup, channel: socket.socket, deadline_s: float) -> None:
        self.cgroup = cgroup
        self.channel = channel
        self.deadline_s = deadline_s
        self.pid = 0
        self.pidfd = -1


class HeldChild:
    """A child that has received its plan and waits to execute it."""

    def __init__(self, child: _Child, plan: SpawnPlan) -> None:
        self._child = child
        self._plan = plan
        self.cgroup = child.cgroup

    def execute(self) -> StartedProcess | None:
        """Let the child execute its plan; return None if the child has ended."""
        child = self._child
        if has_ended(child.pidfd):  # the zygote may still have the channel open
            return None
        try:
            child.channel.send(b"\0", socket.MSG_NOSIGNAL)
        except OSError:  # EPIPE, ECONNRESET: it was killed
            return None
        return self._plan.start_in_child(child.pid, child.pidfd, child.channel.detach())

    def drop(self) -> None:
        """End the child."""
        self._child.channel.close()
        os.close(self._child.pidfd)
        self._plan.close()


class PreforkPool:
    """A pool of at most one pre-forked child. Belongs to the control thread, and never waits.

    Args:
        watch: The control thread's epoll object.
        log: The daemon's log.
        env: The environment of the zygote.
        cgroup_manager: Creates the cgroups of runs.
        on_output: Takes the read end of the zygote's output.
        on_change: Called when a child becomes ready or is lost.
    """

    def __init__(
        self,
        watch: EpollWatch,
        log: Log,
        env: dict[str, str],
        cgroup_manager: CgroupManager,
        on_output: Callable[[int], None],
        on_change: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._clock = watch.clock
        self._log = log
        self._env = env
        self._cgroup_manager = cgroup_manager
        self._on_output = on_output
        self._on_change = on_change
        self._child: _Child | None = None
        self._zygote: int | None = None
        self._pidfd = -1
        self._sock: socket.socket | None = None
        self._greeted = False
        """Whether the zygote has reported that it listens, or has closed its socket."""
        self._listening = False
        self._child_wanted = False
        """Whether to request a child as soon as the zygote listens."""
        self._restart_delay_s = _RESTART_S / 2
        self._started_s = -self._restart_delay_s
        self._start_at_s: float | None = None
        """Monotonic time at which to start the next zygote; None: it is running or not needed."""
        self._is_possible = True

    @property
    def pids(self) -> list[int]:
        """Return the pids of the zygote and the pre-forked child, if they exist."""
        return [pid for pid in (self._zygote, self._child.pid if self._child is not None else None) if pid]

    @property
    def ready(self) -> bool:
        """Return whether a pre-forked child is ready."""
        return self._child is not None and self._child.pidfd >= 0

    @property
    def under_way(self) -> bool:
        """Return whether a child is being created."""
        return self._child is not None and self._child.pidfd < 0

    def ensure_zygote(self) -> None:
        """Start the zygote unless it is running, if possible."""
        now_s = self._clock.monotonic_s()
        if self._zygote is None and self._is_possible and now_s - self._started_s >= self._restart_delay_s:
            self._started_s = now_s
            self._start_at_s = None
            self._start_zygote()

    def next_s(self) -> float | None:
        """Return when :meth:`tick` is due (monotonic seconds)."""
        deadline_s = self._child.deadline_s if self._child is not None and self.under_way else None
        return min((at for at in (deadline_s, self._start_at_s) if at is not None), default=None)

    def tick(self, now_s: float) -> None:
        """Handle due work (monotonic seconds)."""
        if self._child is not None and self.under_way and now_s >= self._child.deadline_s:
            self._log.warning(f"the zygote has not responded for {_PATIENCE_S:g} s: killing it")
            if self._zygote is not None:
                os.kill(self._zygote, signal.SIGKILL)
            self.drop()
            self._on_change()
        if self._start_at_s is not None and now_s >= self._start_at_s:
            self._start_at_s = None
            self.ensure_zygote()

    def drop(self) -> None:
        """End the child, even while it is being created."""
        child, self._child = self._child, None
        if child is not None:
            self._watch.remove(child.channel.fileno())
            child.channel.close()
            if child.pidfd >= 0:
                os.close(child.pidfd)
            self._cgroup_manager.leave(child.cgroup)

    def close(self) -> None:
        """End the zygote and the child."""
        self.drop()
        self._start_at_s = None
        if self._zygote is not None:
            self._disconnect()
            if not has_ended(self._pidfd, _END_S):
                os.kill(self._zygote, signal.SIGKILL)
                has_ended(self._pidfd, _END_S)
            self._reap()

    # The child.

    def request_child(self) -> bool:
        """Request a child from the zygote if there is none; return False if that is not possible now."""
        self.ensure_zygote()
        self._child_wanted = not self._listening
        if self._sock is None or not self._listening:
            return False
        cgroup = self._cgroup_manager.make_spare()
        if cgroup is None:
            return False
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            try:
                channel, their_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours.callback(channel.close)
                theirs.callback(their_channel.close)
                directory = os.open(cgroup.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                theirs.callback(os.close, directory)
                child = _Child(cgroup, channel, self._clock.monotonic_s() + _PATIENCE_S)
                self._watch.add(channel.fileno(), lambda _mask: self._on_child_message(child))
                ours.callback(self._watch.remove, channel.fileno())
                fds = [their_channel.fileno(), directory]
                socket.send_fds(self._sock, [b"\0"], fds, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except (
                OSError
            ):  # EAGAIN, EPIPE: it hangs or ends; EMFILE, ENOMEM, ENOBUFS: the next start reports the reason
                self._cgroup_manager.leave(cgroup)
                return False
            ours.pop_all()
        channel.setblocking(False)
        self._child = child
        return True

    def _on_child_message(self, child: _Child) -> None:
        try:
            data, fds = receive_fds(child.channel, _MESSAGE_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:  # ECONNRESET: it has ended; EMFILE
            data, fds = b"", []
        if data.isdigit() and fds and _is_child(fds[0]):
            child.pid, child.pidfd = int(data), fds[0]
        else:
            for fd in fds:
                os.close(fd)
            self._note_failure(data)
            self.drop()
        self._on_change()

    def _note_failure(self, data: bytes) -> None:
        code = int(data.removeprefix(b"cannot ")) if data.startswith(b"cannot ") else 0
        if code in _UNSUPPORTED:
            self._is_possible = False
            self._log.info(
                f"processes cannot be created in cgroups, so runs join theirs after the start: {os.strerror(code)}"
            )
            self._disconnect()

    def assign(self, plan: SpawnPlan) -> HeldChild | None:
        """Send the plan to the child; return None if that is not possible."""
        child, message = self._child, _message(plan)
        if child is None or message is None:
            return None
        try:
            socket.send_fds(child.channel, [message], plan.child_outputs(), socket.MSG_NOSIGNAL)
        except OSError:  # EPIPE: it was killed; EAGAIN, EMSGSIZE: too much at once
            return None
        self._child = None
        self._watch.remove(child.channel.fileno())
        return HeldChild(child, plan)

    @property
    def cgroup(self) -> Cgroup | None:
        """Return the cgroup of the pre-forked child."""
        return None if self._child is None else self._child.cgroup

    # The zygote.

    def _start_zygote(self) -> None:
        with contextlib.ExitStack() as undo:
            try:
                zygote, pidfd, sock, output = child_process.start(
                    "spawner", self._env, socket.SocketKind.SOCK_SEQPACKET
                )
                undo.callback(os.kill, zygote, signal.SIGKILL)  # it is reaped like an orphan of a run
                for close in (functools.partial(os.close, pidfd), sock.close, functools.partial(os.close, output)):
                    undo.callback(close)
                self._watch.add(sock.fileno(), lambda _mask: self._on_hello(sock))
                undo.callback(self._watch.remove, sock.fileno())
                self._watch.add(pidfd, lambda _mask: self._on_exit())
            except OSError as err:  # EMFILE, EAGAIN, ENOMEM
                self._log.warning(f"cannot start the zygote: {err}")
                return
            undo.pop_all()
        self._zygote, self._pidfd, self._sock = zygote, pidfd, sock
        os.set_blocking(output, False)
        self._on_output(output)

    def _on_hello(self, sock: socket.socket) -> None:
        """Handle the first byte of the zygote, or its end, which its pidfd reports."""
        self._watch.remove(sock.fileno())
        self._greeted = True
        with contextlib.suppress(ConnectionResetError):
            self._listening = bool(sock.recv(1))
        if self._child_wanted and self._child is None:
            self.request_child()

    def _on_exit(self) -> None:
        self._disconnect()
        code = self._reap()
        if self._is_possible:
            self._log.warning(f"the zygote exited with {f'signal {-code}' if code < 0 else f'exit status {code}'}")
            lasted = self._clock.monotonic_s() - self._started_s >= _STABLE_S
            self._restart_delay_s = _RESTART_S if lasted else min(2 * self._restart_delay_s, _MOST_RESTART_S)
            self._start_at_s = self._started_s + self._restart_delay_s

    def _disconnect(self) -> None:
        if self._sock is not None:
            if not self._greeted:
                self._watch.remove(self._sock.fileno())
            self._sock.close()
            self._sock = None
            self._greeted = self._listening = False

    def _reap(self) -> int:
        """Reap the zygote, which has ended, and return its exit status."""
        if self._zygote is None:
            return 0
        self._watch.remove(self._pidfd)
        _, status = os.waitpid(self._zygote, os.WNOHANG)
        os.close(self._pidfd)
        self._zygote = None
        return os.waitstatus_to_exitcode(status)


def _message(plan: SpawnPlan) -> bytes | None:
    """Return the message with a plan; None if it is too large, or if it is invalid, which posix_spawn(3) reports."""
    size = sum(map(len, plan.argv)) + sum(len(name) + len(value) for name, value in plan.env.items())
    texts = [*plan.argv, *plan.env, *plan.env.values(), *plan.carried, *plan.carried.values()]
    names = [*plan.env, *plan.carried]
    if size > MAX_MESSAGE_BYTES or any("\0" in text for text in texts) or any("=" in name for name in names):
        return None
    env = [os.fsencode(f"{name}={value}") for name, value in plan.env.items()]
    argv = [os.fsencode(word) for word in plan.argv]
    message = ChildPlan.encode(argv, env, terminal=plan.terminal, direct=_direct_command(plan))
    return message if len(message) <= MAX_MESSAGE_BYTES else None


def _direct_command(plan: SpawnPlan) -> DirectCommand | None:
    if not plan.paths:
        return None
    spawn = plan.spawn
    return DirectCommand(
        paths=[os.fsencode(path) for path in plan.paths],
        argv=[os.fsencode(word) for word in spawn.argv],
        cwd=None if spawn.cwd is None else os.fsencode(spawn.cwd),
        umask=spawn.umask,
        nofile=plan.nofile,
        carried=[os.fsencode(f"{name}={value}") for name, value in plan.carried.items()],
    )


def _is_child(pidfd: int) -> bool:
    """Return whether a process is our child and not reaped."""
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # ECHILD: it was killed, and reaped with the strangers
        return False
    return True
