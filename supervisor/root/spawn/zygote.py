"""The zygote, ``python -m ringward spawner --fd FD``: forks processes directly into their cgroups.

A process that moves into a cgroup waits until every processor has noticed, about 10 ms, unless another one has moved
just before. A child that is created in the cgroup (CLONE_INTO_CGROUP, clone(2)) does not wait, but posix_spawn(3) and
fork(2) cannot create one. A copy of the root would be unusable because the root has threads; the zygote has only one.
Its children are children of the root (CLONE_PARENT), which reaps them, and they become the shells of runs.

Each message on the socket requests a child. With it come the child's own channel to the root (a socket) and the
directory of a cgroup. The channel then carries:

* from the zygote: ``cannot ERRNO`` if no child could be created.
* from the child: its pid and a pidfd, as soon as it is ready.
* from the root: the plan, with standard output, standard error, and standard input unless that is empty.
* from the root: one byte, after which the child executes the plan. Without this byte nothing is executed, so an
  abandoned child or a killed root leaves nothing running.
* from the child: ``start ERRNO`` if the shell cannot be executed. If standard input is the status pipe of :mod:`.shim`,
  the child writes this there. The executed program does not inherit the channel.

If the shell would only enter a directory, set a umask and restore a limit, the child does that itself and executes the
command. If a step fails, it executes the shell after all, which meets the same error and reports it. If the command
cannot be executed, the child reports that as the shell would, but with the kernel's reason.

The zygote keeps no state. It sends a byte when it begins to listen, and exits when the socket is closed.
"""

import contextlib
import ctypes
import errno
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
from supervisor.host.prepared_command import NO_INTERPRETER, without_carriers

MAX_MESSAGE_BYTES = 65536
"""The maximum size of a plan."""

_CLONE3 = 435
_CLONE_PARENT = 0x8000
_CLONE_INTO_CGROUP = 0x200000000

_MAX_FDS = 3
_FAILED = 127
"""Exit status of a child that did not become a shell."""

_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: keeps the interpreter's lock, which a copy could not get back
_libc.syscall.restype = ctypes.c_long


class _Arguments(ctypes.Structure):
    """``struct clone_args``."""

    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("unused", ctypes.c_uint64 * 9),
        ("cgroup", ctypes.c_uint64),
    ]


class DirectCommand:
    """A command that needs no shell to prepare it.

    Args:
        paths: Possible paths of the program; the first executable one is used.
        argv: The name of the program and its arguments.
        cwd: An absolute path of the working directory.
        umask: The umask.
        nofile: The soft limit on descriptors.
        carried: Environment entries that a shell would lose.
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
        """Return the arguments, from which the child creates the object again."""
        return self.paths, self.argv, self.cwd, self.umask, self.nofile, self.carried


class ChildPlan:
    """The plan of a child: the program that it becomes.

    Args:
        argv: The path of a shell, and its arguments.
        env: Environment entries, ``NAME=VALUE``.
        terminal: Standard output becomes the controlling terminal.
        direct: The command, if it can be executed without the shell.
    """

    def __init__(self, argv: list[bytes], env: list[bytes], *, terminal: bool, direct: DirectCommand | None) -> None:
        self.path = argv[0]
        self.argv = _texts(argv)
        self.env = _texts(env)
        self.terminal = terminal
        self.direct = direct
        self.direct_env = self.env
        self.direct_argv = _texts([] if direct is None else direct.argv)
        if direct is not None:  # set PWD as ``cd`` in a shell does
            working_directory = [] if direct.cwd is None else [b"PWD=" + direct.cwd]
            gone = (b"OLDPWD=", b"PWD=") if working_directory else b"OLDPWD="
            whole = without_carriers(env, direct.carried)
            self.direct_env = _texts(
                [*(variable for variable in whole if not variable.startswith(gone)), *working_directory]
            )

    @staticmethod
    def encode(argv: list[bytes], env: list[bytes], *, terminal: bool, direct: DirectCommand | None = None) -> bytes:
        """Return the message for the child."""
        return marshal.dumps((argv, env, terminal, None if direct is None else direct.encode()))

    @classmethod
    def decode(cls, data: bytes) -> "ChildPlan":
        """Parse a message from the root."""
        argv, env, terminal, direct = marshal.loads(data)  # noqa: S302 - the root wrote it
        return cls(argv, env, terminal=terminal, direct=None if direct is None else DirectCommand(*direct))


def _texts(words: list[bytes]) -> "ctypes.Array[ctypes.c_char_p]":
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def copy(cgroup: int) -> int:
    """Fork this process into a cgroup, as a child of its own parent.

    Args:
        cgroup: A descriptor of the cgroup's directory.

    Returns:
        The pid of the child; 0 in the child.

    Raises:
        OSError: EAGAIN, ENOMEM: no more processes. Other errors: Linux before 5.7, or the call is not permitted.
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
        with channel, contextlib.suppress(BrokenPipeError):  # EPIPE: the root has abandoned the child
            _make(channel, cgroup)
        os.close(cgroup)


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message and its descriptors; empty after the root has closed the socket."""
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
    """In the child, wait for a plan and execute it; return if none arrives or it cannot be executed."""
    os.setsid()
    set_title("ringward spare")
    _rehearse()
    own = os.getpid()
    socket.send_fds(channel, [str(own).encode()], [os.pidfd_open(own)], socket.MSG_NOSIGNAL)
    _become(channel)


def _become(channel: socket.socket) -> None:
    """Receive a plan, prepare it, and execute it when told so; return if that does not happen."""
    telling = channel.fileno()
    outputs: list[int] = []
    try:
        data, outputs = _receive(channel)
        if not data:
            return
        request = ChildPlan.decode(data)
        for fd, target in zip(outputs, (1, 2, 0), strict=False):
            os.dup2(fd, target)
            telling = 0 if target == 0 else telling
        if request.terminal:
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        direct = request.direct is not None and _enter(request.direct)
        if not _receive(channel)[0]:
            return
        if request.direct is not None:
            failure = _execute(request) if direct else None
            if failure is not None:
                os.write(outputs[-1], failure)
                return
            os.dup2(outputs[-1], 0)
        _libc.execve(request.path, request.argv, request.env)
        raise _error()
    except OSError as err:
        os.write(telling, f"start {err.errno}".encode())
    finally:
        for fd in outputs:
            os.close(fd)


def _execute(request: ChildPlan) -> bytes | None:
    """Execute the command; return the report for the status pipe if that is impossible, or None if a shell can."""
    word = f"exec 127 {os.strerror(errno.ENOENT)}"
    for path in () if request.direct is None else request.direct.paths:
        _libc.execve(path, request.direct_argv, request.direct_env)
        code = ctypes.get_errno()
        if code == errno.ENOEXEC:
            return None
        if code not in (errno.ENOENT, errno.ENOTDIR):
            word = f"exec 126 {os.strerror(code)}"
        elif word.startswith("exec 127") and os.path.isfile(path):
            word = f"exec 127 {NO_INTERPRETER}"
    return word.encode()


def _rehearse() -> None:
    """Go through the steps once in vain, so that the kernel copies the pages that they use now rather than later."""
    direct = DirectCommand([b"/"], [b"/"], b".", None, None, [])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, contextlib.suppress(OSError):  # EBADF: there is no status pipe
        request = ChildPlan.encode([b"/"] * 4, [b"A=1"] * 40, terminal=False, direct=direct)
        socket.send_fds(ours, [request], [1, 2, 0])
        ours.send(b"\0")
        _become(theirs)


def _enter(direct: DirectCommand) -> bool:
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
    """Serve until the root closes the socket; return the exit status."""
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    sock = socket.socket(fileno=int(arguments["--fd"]))
    sock.set_inheritable(False)
    # Python handles SIGINT and ignores the other two; runs must not inherit that.
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    set_title("ringward spawner")
    gc.disable()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError):  # EPIPE: the root is gone already
        sock.send(b"\0", socket.MSG_NOSIGNAL)
    serve(sock)
    return 0
