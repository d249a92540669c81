"""``python -m supervisor.root.spawner --fd FD``: makes processes that are in their cgroups from the start.

A process that moves into a cgroup has to wait until every processor has noticed, about 10 ms, if none did just before.
A copy that is made there (CLONE_INTO_CGROUP, clone(2)) need not, but neither posix_spawn(3) nor fork(2) can do that.
The root has threads, so a copy of it could not go on by itself; this process has only one. Its copies are children of
the root (CLONE_PARENT), which reaps them, and become the shells of runs.

Each message on the socket is a request and comes with these descriptors: a channel of its own to the root, the
directory of the cgroup, standard output, standard error, and standard input unless that is empty. The channel, a socket
that the shell does not get, carries then:

* from here: the pid of the copy, and a pidfd of it; or ``cannot ERRNO`` when none could be made.
* from the root: one byte, when it knows the process. Without it nothing is executed; so a start that the root has given
  up, or a dead root, leaves nothing running.
* from the copy: ``start ERRNO``, when the shell cannot be executed; or on standard input, where that is the status pipe
  of :mod:`.shim`.

Where the shell would only enter a directory, set a umask and give back a limit, the copy does that, and executes the
command itself. When anything of it fails, the shell is executed after all: it finds out what is wrong, and says so.

Nothing is remembered here. This process says a byte when it begins to listen, and ends when the socket does.
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
import struct
import sys
import termios

from supervisor.osport import set_title

MAX_MESSAGE_BYTES = 65536
"""Of a request."""

_CLONE3 = 435
_CLONE_PIDFD = 0x1000
_CLONE_PARENT = 0x8000
_CLONE_INTO_CGROUP = 0x200000000

_FD = struct.Struct("i")
_MAX_FDS = 5
_FAILED = 127
"""Exit status of a copy that did not become a shell."""

_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: keeps the interpreter, which nobody could give back to a copy
_libc.syscall.restype = ctypes.c_long


class _Arguments(ctypes.Structure):
    """``struct clone_args``."""

    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("pidfd", ctypes.c_uint64),
        ("unused", ctypes.c_uint64 * 8),
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
    """

    def __init__(
        self, paths: list[bytes], argv: list[bytes], cwd: bytes | None, umask: int | None, nofile: int | None
    ) -> None:
        self.paths = paths
        self.argv = argv
        self.cwd = cwd
        self.umask = umask
        self.nofile = nofile

    def encode(self) -> "tuple[list[bytes], list[bytes], bytes | None, int | None, int | None]":
        """As the arguments of another one."""
        return self.paths, self.argv, self.cwd, self.umask, self.nofile


class Request:
    """What to become.

    Args:
        argv: a shell, by its path, and its arguments.
        env: the entries of its environment, ``NAME=VALUE``.
        terminal: standard output is to become the controlling terminal.
        direct: what the shell would execute, if that can be done without it.
    """

    def __init__(self, argv: list[bytes], env: list[bytes], *, terminal: bool, direct: Direct | None) -> None:
        self.path = argv[0]
        self.argv = _texts(argv)
        self.env = _texts(env)
        self.terminal = terminal
        self.direct = direct
        self.direct_env = self.env
        if direct is not None:  # as cd leaves it in a shell
            place = [] if direct.cwd is None else [b"PWD=" + direct.cwd]
            gone = (b"OLDPWD=", b"PWD=") if place else b"OLDPWD="
            self.direct_env = _texts([*(one for one in env if not one.startswith(gone)), *place])

    @staticmethod
    def encode(argv: list[bytes], env: list[bytes], *, terminal: bool, direct: Direct | None = None) -> bytes:
        """As one message."""
        return marshal.dumps((argv, env, terminal, None if direct is None else direct.encode()))

    @classmethod
    def decode(cls, data: bytes) -> "Request":
        """From a message of the root."""
        argv, env, terminal, direct = marshal.loads(data)  # noqa: S302 - the root wrote it
        return cls(argv, env, terminal=terminal, direct=None if direct is None else Direct(*direct))


def _texts(words: list[bytes]) -> "ctypes.Array[ctypes.c_char_p]":
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def copy(cgroup: int) -> tuple[int, int]:
    """Make a copy of this process in a cgroup, as a child of this process's parent.

    Args:
        cgroup: descriptor of its directory.

    Returns:
        The pid and a pidfd of the copy; 0 and -1 in the copy.

    Raises:
        OSError: EAGAIN, ENOMEM: no more processes; else the kernel cannot do that (Linux before 5.7), or must not.
    """
    pidfd = ctypes.c_int(-1)
    flags = _CLONE_PARENT | _CLONE_INTO_CGROUP | _CLONE_PIDFD
    arguments = _Arguments(flags=flags, pidfd=ctypes.addressof(pidfd), cgroup=cgroup)
    pid: int = _libc.syscall(ctypes.c_long(_CLONE3), ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments)))
    if pid < 0:
        raise _error()
    return pid, pidfd.value


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def serve(sock: socket.socket) -> None:
    """Until the root hangs up."""
    while True:
        try:
            data, ancillary, flags, _ = sock.recvmsg(
                MAX_MESSAGE_BYTES, socket.CMSG_SPACE(_MAX_FDS * _FD.size), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return
        if not data:
            return
        fds = [fd for _, _, words in ancillary for (fd,) in _FD.iter_unpack(words[: len(words) // _FD.size * _FD.size])]
        if not flags & socket.MSG_CTRUNC:  # else some did not come through, and the root sees its channel end
            channel, *others = fds
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=channel) as line:
                _begin(Request.decode(data), line, *others)
            fds = others
        for fd in fds:
            os.close(fd)


def _begin(request: Request, channel: socket.socket, cgroup: int, *outputs: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # EPIPE: the root has given it up
        try:
            pid, pidfd = copy(cgroup)
        except OSError as err:
            channel.send(f"cannot {err.errno}".encode(), socket.MSG_NOSIGNAL)
            return
        if pid == 0:
            try:
                _become(request, channel.fileno(), outputs)
            finally:
                os._exit(_FAILED)
        try:
            socket.send_fds(channel, [str(pid).encode()], [pidfd], socket.MSG_NOSIGNAL)
        finally:
            os.close(pidfd)


def _become(request: Request, channel: int, outputs: tuple[int, ...]) -> None:
    """Become the shell, in a copy; returns when that is not to be, or cannot."""
    telling = channel
    try:
        os.setsid()
        for fd, target in zip(outputs, (1, 2, 0), strict=False):
            os.dup2(fd, target)
            telling = 0 if target == 0 else telling
        if not _is_wanted(channel):
            return
        if request.terminal:
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        if request.direct is not None:
            with contextlib.suppress(OSError, ValueError):  # ValueError: a limit above the hard one
                _execute(request.direct, request.direct_env)
            os.dup2(outputs[-1], 0)
        _libc.execve(request.path, request.argv, request.env)
        raise _error()
    except OSError as err:
        os.write(telling, f"start {err.errno}".encode())


def _execute(direct: Direct, env: "ctypes.Array[ctypes.c_char_p]") -> None:
    """Become the command; returns, or raises OSError, when that is not possible."""
    empty = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(empty, 0)
    os.close(empty)
    if direct.cwd is not None:
        os.chdir(direct.cwd)
    if direct.umask is not None:
        os.umask(direct.umask)
    if direct.nofile is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (direct.nofile, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    argv = _texts(direct.argv)
    for path in direct.paths:
        _libc.execve(path, argv, env)


def _is_wanted(channel: int) -> bool:
    """Wait for the word of the root; False when it has given the start up, or is gone.

    What is given up shares its outputs with the process that the root starts instead, and leaves them alone.
    """
    try:
        return bool(os.read(channel, 1))
    except ConnectionResetError:  # it had not heard yet of us
        return False


def main() -> int:
    """Run until the root hangs up; returns the exit status."""
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


if __name__ == "__main__":
    sys.exit(main())
