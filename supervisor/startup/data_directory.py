"""The data directory: created, checked for write access, locked, and given its identity."""

import contextlib
import errno
import fcntl
import os
import pwd
import stat
import time

from supervisor.host.files import make_parents, nearest_existing, replace_file
from supervisor.ipc import run_token
from supervisor.ipc.messages import ID, LOCK, RUN_TOKEN_KEY, DaemonSettings
from supervisor.startup.refusal import NotStarted, RefusalCause

RESERVE = "reserve"
"""Name of the file that reserves disk space for the database."""

HOMELESS = "the user has no home directory; set data_dir in [daemon], or HOME"
"""Why the default for the data directory is a relative path, which is another directory for each command."""
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ID_CHARS = 26
_START_BYTES = 1 << 20
"""Space that the files of a start need, such as the database's ``-shm`` and ``-wal``."""
_MIN_BYTES = 4096
"""Space without which no start is attempted. More is not required, because the files may exist already."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def prepare(path: str) -> None:
    """Create the data directory, readable only for its owner, unless it exists; check that it can be written.

    If the disk has too little space for a start, the space reserved for the database is released.

    Raises:
        NotStarted: it cannot be used; the message gives the reason.
    """
    if not os.path.isabs(path):
        raise NotStarted(f"cannot use the data directory {path}: {HOMELESS}", RefusalCause.DATA_DIRECTORY)
    try:
        make_parents(path)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        try:
            _probe(path, _START_BYTES)
        except OSError as err:
            if err.errno not in _FULL:
                raise
            _release_reserve(path)
            _probe(path, _MIN_BYTES)
    except OSError as err:
        raise unusable(path, err) from err
    if os.geteuid() == 0:
        _take_over(path)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & stat.S_IWOTH:
        of_all = mode & stat.S_ISVTX  # a directory like /tmp, whose mode must not change
        remedy = "use a directory of its own" if of_all else f"run: chmod o-w {path}"
        text = f"the data directory {path} is writable by everyone (mode {mode:04o}); {remedy}"
        raise NotStarted(text, RefusalCause.DATA_DIRECTORY)


def _take_over(path: str) -> None:
    """Make root the owner of another user's empty directory, such as a new container volume.

    Raises:
        NotStarted: the directory is not empty.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(directory)
        if status.st_uid == 0:
            return
        os.fchown(directory, 0, 0)
        os.fchmod(directory, 0o700)
        if os.listdir(directory):  # checked only now, when no other user can create files there any more
            os.fchmod(directory, stat.S_IMODE(status.st_mode))
            os.fchown(directory, status.st_uid, status.st_gid)
            raise NotStarted(
                f"the data directory {path} belongs to {_user(status.st_uid)}, who could redirect root's writes; "
                f"run: chown -R root: {path}",
                RefusalCause.DATA_DIRECTORY,
            )
    finally:
        os.close(directory)


def take_lock(path: str) -> int:
    """Lock the data directory; return an inheritable descriptor, with which the lock survives execve(2).

    It is a flock(2) lock on the file ``lock``, which also contains the pid, for people to read.

    Raises:
        NotStarted: another process holds the lock, or the file cannot be created.
    """
    name = os.path.join(path, LOCK)
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise unusable(path, err) from err
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        os.set_inheritable(fd, True)
    except BlockingIOError as err:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise NotStarted(f"a daemon already runs on {path} (pid {holder})", RefusalCause.ALREADY_RUNNING) from err
    except OSError as err:
        os.close(fd)
        raise unusable(path, err) from err
    return fd


def identity(path: str) -> str:
    """Return the ULID of the data directory; at the first use a new one, which :func:`store_identity` will write.

    Raises:
        NotStarted: it cannot be read, or is not a ULID.
    """
    name = os.path.join(path, ID)
    try:
        with open(name, encoding="ascii", errors="replace") as file:
            text = file.read(64).strip()
    except FileNotFoundError:
        return new_id()
    except OSError as err:
        raise unusable(path, err) from err
    if len(text) != _ID_CHARS or not set(text) <= set(_CROCKFORD):
        message = f"{name} has no valid id; restore it, or remove it for a new one"
        raise NotStarted(message, RefusalCause.DATA_DIRECTORY)
    return text


def run_token_key(directory: str) -> str:
    """Return the key for tokens of runs (:mod:`supervisor.ipc.run_token`); at the first start a new one.

    Raises:
        NotStarted: it cannot be read, or is invalid.
    """
    name = os.path.join(directory, RUN_TOKEN_KEY)
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.urandom(run_token.KEY_BYTES).hex()
    except OSError as err:
        raise unusable(directory, err) from err
    try:
        key = os.pread(fd, 4 * run_token.KEY_BYTES, 0).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
    if len(key) != 2 * run_token.KEY_BYTES:
        raise NotStarted(
            f"{name} has no valid key; remove it, and the next start creates a new one", RefusalCause.DATA_DIRECTORY
        )
    return key


def store_identity(settings: DaemonSettings) -> None:
    """Write the id and the key for tokens of runs atomically and durably, once the start is certain.

    Raises:
        NotStarted: a file cannot be written.
    """
    try:
        for name, text in settings.identity_files.items():
            replace_file(os.path.join(settings.data_dir, name), f"{text}\n", durable=True)
    except OSError as err:
        raise unusable(settings.data_dir, err) from err


def new_id() -> str:
    """Return a new ULID: 48 bits of time in ms and 80 random bits, in Crockford's base 32."""
    number = (time.time_ns() // 1_000_000 << 80) | int.from_bytes(os.urandom(10))
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def unusable(path: str, err: OSError) -> NotStarted:
    """Return the error to raise when `err` makes the data directory unusable."""
    return NotStarted(f"cannot use the data directory {path}: {_reason(path, err)}", RefusalCause.DATA_DIRECTORY)


def _reason(path: str, err: OSError) -> str:
    if err.errno == errno.EROFS:
        return "its file system is read-only"
    if err.errno == errno.ENOSPC:
        return "its file system is full"
    if err.errno == errno.EDQUOT:
        return "the disk quota is used up"
    if err.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{err.filename or path} is not a directory, or its parent is not"
    if err.errno in (errno.EACCES, errno.EPERM):
        nearest = nearest_existing(path)
        status = os.stat(nearest)
        return (
            f"{nearest} belongs to {_user(status.st_uid)} (mode {stat.S_IMODE(status.st_mode):04o}), "
            f"and this is {_user(os.geteuid())}"
        )
    return err.strerror or str(err)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _probe(path: str, size: int) -> None:
    """Write a file of `size` bytes and remove it: permissions do not tell whether the disk has space."""
    name = os.path.join(path, f".probe-{os.getpid()}")
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < size:  # the last write before ENOSPC is short
            written += os.write(fd, bytes(size - written))
    finally:
        os.close(fd)
        os.unlink(name)


def _release_reserve(path: str) -> None:
    """Remove the file that reserves disk space for the database, unless a daemon uses the directory.

    The scheduler recreates the file once the disk has space, and reports the full disk until then.
    """
    with contextlib.suppress(OSError):  # ENOENT; EWOULDBLOCK: a daemon uses the directory
        fd = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(os.path.join(path, RESERVE))
        finally:
            os.close(fd)
