"""Linux system calls that the standard library lacks, and the sockets that are built on them.

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
"""The numbers of sched_getattr and sched_setattr by machine, from its unistd.h; glibc has them only since 2.41."""
_SCHED_FLAG_RESET_ON_FORK = 1
_SLICE_NS = 100_000  # the minimum
_ARG_START_FIELD = 48
_ARG_END_FIELD = 49

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int | bytes) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


def end_with_parent() -> None:
    """Let the kernel kill this process, but not its children, when its parent ends (PR_SET_PDEATHSIG, prctl(2)).

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Let orphaned descendants become children of this process (PR_SET_CHILD_SUBREAPER, prctl(2)).

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def take_short_slices() -> None:
    """Run the calling thread in time slices of 0.1 ms, so that other threads wait less and do not preempt it.

    Its share of the processor stays the same, and its children have the usual slices. Nothing changes on kernels before
    6.12, if the kernel refuses, under another scheduling policy than SCHED_OTHER, or on an unknown machine.
    """
    size = _SCHED_ATTR.size
    calls = _SCHED_CALLS.get(os.uname().machine)
    attributes = ctypes.create_string_buffer(size)
    if calls is None or sys.maxsize < 1 << 32 or _libc.syscall(calls[0], 0, attributes, size, 0) != 0:
        return
    _, policy, flags, nice, priority, _, *further = _SCHED_ATTR.unpack(attributes.raw)
    if policy == os.SCHED_OTHER:
        flags |= _SCHED_FLAG_RESET_ON_FORK
        with_slice = _SCHED_ATTR.pack(size, policy, flags, nice, priority, _SLICE_NS, *further)
        _libc.syscall(calls[1], 0, with_slice, 0)


def release_free_memory() -> None:
    """Return the free pages within the heap to the kernel (malloc_trim(3)), which only glibc can do."""
    with contextlib.suppress(AttributeError):
        _libc.malloc_trim(0)


def current_boot() -> str:
    """Return the id of this boot of the host; empty when it is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # /proc is not mounted
        return ""


def set_title(title: str) -> None:
    """Show `title` in ps(1) as the command line and, truncated to 15 bytes, as the thread name.

    The kernel shows the argument area of the process. If the last byte of the area is not NUL, it shows only the string
    at the start (proc_pid_cmdline(5); get_mm_proctitle in fs/proc/base.c). So the title overwrites the arguments, and
    the last byte is set. A title that does not fit is truncated. Without /proc, only the thread name changes.

    Raises:
        OSError: prctl(2) refused the name.
    """
    _prctl(_PR_SET_NAME, title.encode()[:15])
    try:
        with open("/proc/self/stat", "rb") as stat:
            # Field 2, the name, can contain spaces, so counting starts with field 3, after the last parenthesis.
            fields = stat.read().rpartition(b")")[2].split()
    except FileNotFoundError:  # /proc is not mounted
        return
    start, end = int(fields[_ARG_START_FIELD - 3]), int(fields[_ARG_END_FIELD - 3])
    size = end - start
    if not start or size < 2:
        return
    text = title.encode()[: size - 2]
    ctypes.memmove(start, text.ljust(size - 1, b"\0") + b".", size)


def forbid_new_privileges() -> None:
    """Prevent programs executed from now on from gaining privileges (PR_SET_NO_NEW_PRIVS, prctl(2)).

    Raises:
        OSError: the kernel refused.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Become another user irrevocably. Executed programs cannot gain privileges either.

    Raises:
        OSError: the caller is not root.
    """
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    forbid_new_privileges()


def peer(sock: socket.socket) -> tuple[int, int]:
    """Return the pid and the user id of the process that connected to a Unix socket, or that listens on it.

    This is SO_PEERCRED of unix(7). The pid is 0 if the process is not in our pid namespace.

    Raises:
        OSError: the socket is not a connected Unix socket.
    """
    pid, uid, _gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def receive_fds(sock: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """Receive a message of at most `size` bytes with at most `count` descriptors, and make them close-on-exec.

    :func:`socket.recv_fds` cannot do this, because it ignores its flags, including MSG_CMSG_CLOEXEC.

    Returns:
        The received bytes and descriptors; both are empty at end of stream.

    Raises:
        BlockingIOError: no message is waiting, on a non-blocking socket.
        ConnectionResetError: the peer closed the connection before it had read everything.
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
    """A listening Unix socket for processes of the daemon's user, of root and optionally of one more user.

    Without a free descriptor (EMFILE, ENFILE), a connection would stay in the backlog and wake the event loop forever.
    So the listener keeps one descriptor in reserve, which it closes to accept such a connection and hang up.
    """

    def __init__(
        self, path: str, kind: socket.SocketKind, backlog: int, account: tuple[int, int] | None = None
    ) -> None:
        """Listen at `path`, replacing a socket that an earlier process left there.

        Args:
            path: The path of the socket.
            kind: The type of the socket.
            backlog: How many connections can wait to be accepted.
            account: The ids of a user and a group that may connect too.

        Raises:
            OSError: the path cannot be bound.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._sock = socket.socket(socket.AF_UNIX, kind)
        self._sock.setblocking(False)
        self._sock.bind(path)
        self._users = {os.geteuid(), 0}
        if account is not None:
            self._users.add(account[0])
            os.chown(path, -1, account[1])
            os.chmod(path, 0o660)
        self._sock.listen(backlog)
        self.stuck = False
        """Whether a connection is waiting that can neither be accepted nor hung up on."""
        self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor, for epoll."""
        return self._sock.fileno()

    def accept(self) -> socket.socket | None:
        """Accept one connection and make it non-blocking; return None if none is waiting or its user is not allowed."""
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
        _pid, uid = peer(sock)
        if uid not in self._users:
            sock.close()
            return None
        sock.setblocking(False)
        return sock

    def _hang_up(self) -> None:
        self._release()
        try:
            self._sock.accept()[0].close()
        except OSError:  # another thread, or with ENFILE another process, has taken the free descriptor
            self.stuck = True
        with contextlib.suppress(OSError):  # no free descriptor: the next connection tries again
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _release(self) -> None:
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1

    def close(self) -> None:
        """Stop listening and release the reserved descriptor."""
        self._sock.close()
        self._release()


class UnverifiedConnections:
    """Connections that have not sent the token yet. Clients send it at once, so few are needed at a time.

    The limit protects the descriptors of other connections. Beyond it, the oldest connection is shut down. The event
    loop that watches that connection then reads the end of the stream and closes it.
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
            with contextlib.suppress(OSError):  # ENOTCONN: the peer has hung up
                oldest.shutdown(socket.SHUT_RDWR)

    def discard(self, sock: socket.socket) -> None:
        """Remove a connection that has sent the token or has closed."""
        self._socks.pop(sock, None)
