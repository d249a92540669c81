"""The few Linux calls that the standard library lacks, for every process of the daemon.

Standard library only: the root process loads this.
"""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import struct
import sys
import threading

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_UCRED = struct.Struct("3i")
_FD = struct.Struct("i")
_SCHED_ATTR = struct.Struct(
    "=IIQiIQQQII"
)  # struct sched_attr, sched_setattr(2): size, policy, flags, nice, ..., runtime
_SCHED_CALLS = {"x86_64": (315, 314), "aarch64": (275, 274), "riscv64": (275, 274)}
"""Numbers of sched_getattr and sched_setattr, which glibc has since 2.41 only, by machine: its unistd.h."""
_SCHED_FLAG_RESET_ON_FORK = 1
_SLICE_NS = 100_000  # the least there is
_ARG_START_FIELD = 48
_ARG_END_FIELD = 49

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int | bytes) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def end_with_parent() -> None:
    """Have this process killed when its parent ends (PR_SET_PDEATHSIG, prctl(2)); who it starts is not.

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Have orphaned descendants become children of this process (PR_SET_CHILD_SUBREAPER, prctl(2)).

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def take_short_slices() -> None:
    """Run the calling thread in slices of 0.1 ms: other threads wait less for their own, and do not interrupt it.

    Its share of the processor stays the same, and its children have the usual slices. Nothing changes without the
    ordinary policy, on kernels before 6.12, if the kernel refuses, or on a machine whose system call number is unknown.
    """
    size = _SCHED_ATTR.size
    calls = _SCHED_CALLS.get(os.uname().machine)
    attributes = ctypes.create_string_buffer(size)
    if calls is None or sys.maxsize < 1 << 32 or _libc.syscall(calls[0], 0, attributes, size, 0) != 0:
        return
    _, policy, flags, nice, priority, _, *rest = _SCHED_ATTR.unpack(attributes.raw)
    if policy == os.SCHED_OTHER:
        flags |= _SCHED_FLAG_RESET_ON_FORK
        wanted = _SCHED_ATTR.pack(size, policy, flags, nice, priority, _SLICE_NS, *rest)
        _libc.syscall(calls[1], 0, wanted, 0)


def current_boot() -> str:
    """Return the id of this boot of the host; empty when it is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # no /proc
        return ""


def set_title(title: str) -> None:
    """Show `title` in ps(1) as command line and, cut to 15 bytes, as thread name.

    The kernel shows the argument area of the process, or, when the area's last byte is not NUL, the string
    at its start (proc_pid_cmdline(5); get_mm_proctitle in fs/proc/base.c). So the title is written over the
    arguments and the last byte is set. A title that does not fit is cut; without /proc nothing happens.

    Raises:
        OSError: prctl(2) refused the name.
    """
    _prctl(_PR_SET_NAME, title.encode()[:15])
    try:
        with open("/proc/self/stat", "rb") as stat:
            # Field 2, the name, may hold blanks: count from behind its closing parenthesis (field 3 on).
            fields = stat.read().rpartition(b")")[2].split()
    except FileNotFoundError:  # no /proc mounted
        return
    start, end = int(fields[_ARG_START_FIELD - 3]), int(fields[_ARG_END_FIELD - 3])
    size = end - start
    if not start or size < 2:
        return
    text = title.encode()[: size - 2]
    ctypes.memmove(start, text.ljust(size - 1, b"\0") + b".", size)


def forbid_new_privileges() -> None:
    """Let executed programs gain no rights (PR_SET_NO_NEW_PRIVS, prctl(2)).

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Become another user for good. Executed programs gain no rights either (PR_SET_NO_NEW_PRIVS of prctl(2)).

    Raises:
        OSError: we are not root.
    """
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    forbid_new_privileges()


def peer_uid(sock: socket.socket) -> int:
    """Return the user id of the process that connected a Unix socket (SO_PEERCRED, unix(7)).

    Raises:
        OSError: not a connected Unix socket.
    """
    _pid, uid, _gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


def receive_fds(sock: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """Return a message of at most `size` bytes with at most `count` descriptors, which are close-on-exec.

    :func:`socket.recv_fds` ignores its flags, MSG_CMSG_CLOEXEC among them.

    Returns:
        The received bytes and descriptors; empty at the end.

    Raises:
        BlockingIOError: no message is waiting, on a non-blocking socket.
        ConnectionResetError: the peer closed the connection without reading all that it was sent.
        OSError: EMFILE: some of the descriptors could not be received; all others are closed.
    """
    data, ancillary, flags, _ = sock.recvmsg(size, socket.CMSG_SPACE(count * _FD.size), socket.MSG_CMSG_CLOEXEC)
    fds = [fd for *_, part in ancillary for (fd,) in _FD.iter_unpack(part[: len(part) // _FD.size * _FD.size])]
    if flags & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return data, fds


class UnixListener:
    """A listening Unix socket for processes of our own user, of root, and optionally of one more user.

    Without a free descriptor (EMFILE, ENFILE) a connection would stay in the backlog and wake its loop without end. So
    one descriptor is kept in reserve. It is closed for long enough to accept such a connection and hang up.
    """

    def __init__(self, path: str, kind: socket.SocketKind, backlog: int, also: tuple[int, int] | None = None) -> None:
        """Listen at `path`, replacing a socket that an earlier process left there.

        Args:
            path: of the socket.
            kind: of the connections.
            backlog: how many may wait to be accepted.
            also: numbers of a user and its group who may connect, too.

        Raises:
            OSError: the path cannot be bound.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._sock = socket.socket(socket.AF_UNIX, kind)
        self._sock.setblocking(False)
        self._sock.bind(path)
        self._users = {os.geteuid(), 0}
        if also is not None:
            self._users.add(also[0])
            os.chown(path, -1, also[1])
            os.chmod(path, 0o660)
        self._sock.listen(backlog)
        self.stuck = False
        """A connection waits that can neither be accepted nor hung up on."""
        self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor, for epoll."""
        return self._sock.fileno()

    def accept(self) -> socket.socket | None:
        """Accept one connection, non-blocking; return None when none is waiting or acceptable."""
        self.stuck = False
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as err:
            if err.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._hang_up()
            return None
        if peer_uid(sock) not in self._users:
            sock.close()
            return None
        sock.setblocking(False)
        return sock

    def _hang_up(self) -> None:
        self._release()
        try:
            self._sock.accept()[0].close()
        except OSError:  # another thread, or with ENFILE another process, was faster
            self.stuck = True
        with contextlib.suppress(OSError):  # the same: the next one tries again
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _release(self) -> None:
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1

    def close(self) -> None:
        """Take no more connections."""
        self._sock.close()
        self._release()


class Strangers:
    """Connections without a token so far. It comes at once, so a small limit protects the descriptors of others.

    Beyond the limit, the oldest is shut down; its loop reads the end, and closes it.
    """

    _MOST = 64

    def __init__(self) -> None:
        self._socks: dict[socket.socket, None] = {}

    def add(self, sock: socket.socket) -> None:
        """Add a new connection."""
        self._socks[sock] = None
        if len(self._socks) > self._MOST:
            oldest = next(iter(self._socks))
            del self._socks[oldest]
            with contextlib.suppress(OSError):  # ENOTCONN: it has gone
                oldest.shutdown(socket.SHUT_RDWR)

    def discard(self, sock: socket.socket) -> None:
        """Remove a connection that has sent the token or has closed."""
        self._socks.pop(sock, None)


class Wakeup:
    """An eventfd that one thread sets and another one's epoll waits for."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._set = self._readable = self._held = False

    def fileno(self) -> int:
        """Return the descriptor, for epoll: readable while set, unless held."""
        return self._fd

    def set(self) -> None:
        """Wake the waiting side; costs a system call only when it was not already set."""
        with self._lock:
            self._set = True
            self._show()

    def clear(self) -> None:
        """Reset the event; call it before the work."""
        with self._lock:
            self._set = False
            if self._readable:
                os.eventfd_read(self._fd)
                self._readable = False  # an error leaves it readable, so that it is read the next time

    def hold(self) -> None:
        """Delay the wake-up until :meth:`release`: the setter has more to do, and the two threads would compete."""
        with self._lock:
            self._held = True

    def release(self) -> None:
        """Wake the waiting side, if it was set meanwhile."""
        with self._lock:
            self._held = False
            self._show()

    def _show(self) -> None:
        if self._set and not (self._held or self._readable):
            os.eventfd_write(self._fd, 1)
            self._readable = True

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._fd)
