"""``python -m ringward spawner --fd FD``: forks processes directly into their cgroups.

A process that moves into a cgroup waits until every processor has noticed: about 10 ms, unless another moved just
before. A copy made in the cgroup (CLONE_INTO_CGROUP, clone(2)) does not wait; posix_spawn(3) and fork(2) cannot do it.
The root has threads, so a copy of it could not go on by itself; this process has only one. Its copies are children of
the root (CLONE_PARENT), which reaps them, and become the shells of runs.

Each message on the socket asks for a copy, and comes with a channel of its own to the root, a socket, and the directory
of a cgroup. The channel carries then:

* from here: ``cannot ERRNO`` when no copy could be made.
* from the copy: its pid and a pidfd of it, as soon as it is ready to become anything.
* from the root: what to become, with standard output, standard error, and standard input unless that is empty.
* from the root: one byte, when it is to become that. Without it nothing is executed. So an abandoned copy, or a dead
root, leaves nothing running.
* from the copy: ``start ERRNO``, when the shell cannot be executed; or on standard input, where that is the status pipe
  of :mod:`.shim`. The executed program does not inherit the channel.

Where the shell would only enter a directory, set a umask and give back a limit, the copy does that, and executes the
command itself. If a step fails, the shell is executed after all; it finds and reports the error.

This process keeps no state. It sends a byte when it begins to listen, and ends when the socket does.
"""

import contextlib
import ctypes
import fcntl
import gc
import marshal
import os
import resource
import signal
import socket
import sys
import termios

from supervisor.host.osport import receive_fds, set_title
from supervisor.host.prepared_command import without_carriers

MAX_MESSAGE_BYTES = 65536
"""Of a request."""

_CLONE3 = 435
_CLONE_PARENT = 0x8000
_CLONE_INTO_CGROUP = 0x200000000

_MAX_FDS = 3
_FAILED = 127
"""Exit status of a copy that did not become a shell."""

_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: keeps the interpreter's lock, which a copy could not get back
_libc.syscall.restype = ctypes.c_long


class _Arguments(ctypes.Structure):
    """``struct clone_args``."""

    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("unused", ctypes.c_uint64 * 9),
        ("cgroup", ctypes.c_uint64),
    ]


class Direct:
    """A command that needs no shell in front of it.

    Args:
        paths: where the program may be; the first that can be executed is it.
        argv: it and its arguments.
        cwd: its directory, an absolute path.
        umask: of the process.
        nofile: soft limit on descriptors.
        carried: entries of its environment that a shell would lose.
    """

    def __init__(
        self,
        paths: list[bytes],
        argv: list[bytes],
        cwd: bytes | None,
        umask: int | None,
        nofile: int | None,
        carried: list[bytes],
    ) -> None:
        self.paths = paths
        self.argv = argv
        self.cwd = cwd
        self.umask = umask
        self.nofile = nofile
        self.carried = carried

    def encode(self) -> "tuple[list[bytes], list[bytes], bytes | None, int | None, int | None, list[bytes]]":
        """Return the arguments for another zygote."""
        return self.paths, self.argv, self.cwd, self.umask, self.nofile, self.carried


class Request:
    """The program that a copy becomes.

    Args:
        argv: a shell, by its path, and its arguments.
        env: the entries of its environment, ``NAME=VALUE``.
        terminal: standard output is to become the controlling terminal.
        direct: the command that the shell would execute, if no shell is needed.
    """

    def __init__(self, argv: list[bytes], env: list[bytes], *, terminal: bool, direct: Direct | None) -> None:
        self.path = argv[0]
        self.argv = _texts(argv)
        self.env = _texts(env)
        self.terminal = terminal
        self.direct = direct
        self.direct_env = self.env
        self.direct_argv = _texts([] if direct is None else direct.argv)
        if direct is not None:  # as cd leaves it in a shell
            place = [] if direct.cwd is None else [b"PWD=" + direct.cwd]
            gone = (b"OLDPWD=", b"PWD=") if place else b"OLDPWD="
            whole = without_carriers(env, direct.carried)
            self.direct_env = _texts([*(one for one in whole if not one.startswith(gone)), *place])

    @staticmethod
    def encode(argv: list[bytes], env: list[bytes], *, terminal: bool, direct: Direct | None = None) -> bytes:
        """Return the message."""
        return marshal.dumps((argv, env, terminal, None if direct is None else direct.encode()))

    @classmethod
    def decode(cls, data: bytes) -> "Request":
        """Parse a message of the root."""
        argv, env, terminal, direct = marshal.loads(data)  # noqa: S302 - the root wrote it
        return cls(argv, env, terminal=terminal, direct=None if direct is None else Direct(*direct))


def _texts(words: list[bytes]) -> "ctypes.Array[ctypes.c_char_p]":
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def copy(cgroup: int) -> int:
    """Make a copy of this process in a cgroup, as a child of this process's parent.

    Args:
        cgroup: descriptor of its directory.

    Returns:
        The pid of the copy; 0 in the copy.

    Raises:
        OSError: EAGAIN, ENOMEM: no more processes; else the kernel cannot do that (Linux before 5.7), or must not.
    """
    arguments = _Arguments(flags=_CLONE_PARENT | _CLONE_INTO_CGROUP, cgroup=cgroup)
    pid: int = _libc.syscall(ctypes.c_long(_CLONE3), ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments)))
    if pid < 0:
        raise _error()
    return pid


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def serve(sock: socket.socket) -> None:
    """Serve requests until the root hangs up."""
    while True:
        try:
            data, fds = _receive(sock)
        except OSError:  # EMFILE: the root sees its channel end
            continue
        if not data:
            return
        channel, cgroup = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=fds[0]), fds[1]
        with channel, contextlib.suppress(BrokenPipeError):  # EPIPE: the root has given it up
            _make(channel, cgroup)
        os.close(cgroup)


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message and its descriptors; empty when the root is gone."""
    try:
        return receive_fds(sock, MAX_MESSAGE_BYTES, _MAX_FDS)
    except ConnectionResetError:
        return b"", []


def _make(channel: socket.socket, cgroup: int) -> None:
    try:
        pid = copy(cgroup)
    except OSError as err:
        channel.send(f"cannot {err.errno}".encode(), socket.MSG_NOSIGNAL)
        return
    if pid == 0:
        try:
            _stand_by(channel)
        finally:
            os._exit(_FAILED)


def _stand_by(channel: socket.socket) -> None:
    """Wait, in a copy, for what to become, and become it; returns when that is nothing, or cannot be."""
    os.setsid()
    set_title("ringward spare")
    _rehearse()
    own = os.getpid()
    socket.send_fds(channel, [str(own).encode()], [os.pidfd_open(own)], socket.MSG_NOSIGNAL)
    _become(channel)


def _become(channel: socket.socket) -> None:
    """Receive a request, prepare for it, and execute it when the word comes; return if it does not come."""
    telling = channel.fileno()
    outputs: list[int] = []
    try:
        data, outputs = _receive(channel)
        if not data:
            return
        request = Request.decode(data)
        for fd, target in zip(outputs, (1, 2, 0), strict=False):
            os.dup2(fd, target)
            telling = 0 if target == 0 else telling
        if request.terminal:
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        direct = request.direct is not None and _enter(request.direct)
        if not _receive(channel)[0]:
            return
        if request.direct is not None:
            if direct:
                for path in request.direct.paths:
                    _libc.execve(path, request.direct_argv, request.direct_env)
            os.dup2(outputs[-1], 0)
        _libc.execve(request.path, request.argv, request.env)
        raise _error()
    except OSError as err:
        os.write(telling, f"start {err.errno}".encode())
    finally:
        for fd in outputs:
            os.close(fd)


def _rehearse() -> None:
    """Fail a chdir in advance: the kernel copies a page for each first use in a copy."""
    direct = Direct([b"/"], [b"/"], b".", None, None, [])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, contextlib.suppress(OSError):  # EBADF: there is no status pipe
        request = Request.encode([b"/"] * 4, [b"A=1"] * 40, terminal=False, direct=direct)
        socket.send_fds(ours, [request], [1, 2, 0])
        ours.send(b"\0")
        _become(theirs)


def _enter(direct: Direct) -> bool:
    """Prepare this process as the shell would before the command; return False if that fails."""
    empty = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(empty, 0)
    os.close(empty)
    with contextlib.suppress(OSError, ValueError):  # ValueError: a limit above the hard one
        if direct.cwd is not None:
            os.chdir(direct.cwd)
        if direct.umask is not None:
            os.umask(direct.umask)
        if direct.nofile is not None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (direct.nofile, hard))
        return True
    return False


def main() -> int:
    """Run until the root hangs up; returns the exit status."""
    if sys.argv[1:] == ["--check"]:
        return 0
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    sock = socket.socket(fileno=int(arguments["--fd"]))
    sock.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # which Python changes
        signal.signal(number, signal.SIG_DFL)
    set_title("ringward spawner")
    gc.disable()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError):  # EPIPE: the root is gone already
        sock.send(b"\0", socket.MSG_NOSIGNAL)
    serve(sock)
    return 0
