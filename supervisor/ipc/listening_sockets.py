"""The listening sockets of the HTTP API.

The root owns them and passes them to gunicorn, so that connections wait in the backlog while gunicorn restarts.
"""

import contextlib
import errno
import json
import os
import socket
import stat

from logring.log_paths import DAEMON_RING, ring_path
from supervisor.host.files import replace_file
from supervisor.host.osport import peer
from supervisor.host.procfs import find_process, listener_of
from supervisor.ipc.messages import DaemonSettings

_BACKLOG = 1024


class CannotListen(Exception):
    """An address cannot be bound."""


class AddressInUse(CannotListen):
    """Another program listens on the address."""


def bind_tcp(host: str, port: int, backlog: int = _BACKLOG) -> socket.socket:
    """Return a socket that listens on a numeric address; `backlog`: how many connections can wait to be accepted.

    Raises:
        CannotListen: the address is in use, or cannot be bound; the message names the listener, if this user sees it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # [::] means IPv6 only; IPv4 is configured as a second address.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as err:
        sock.close()
        message = f"cannot listen on {host}:{port}: {err.strerror or err}"
        if err.errno == errno.EADDRINUSE:
            raise AddressInUse(f"{message}: {listener_of(port) or 'another program'} listens there") from err
        raise CannotListen(message) from err
    return sock


def _unix(path: str, gid: int | None) -> socket.socket:
    pid = listener_at(path)
    if pid is not None:
        listener = find_process(pid) or "another program"
        raise CannotListen(f"cannot listen on {path}: {listener} listens there; set another path in [http]")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if is_socket(path):
            os.unlink(path)
        sock.bind(path)
        if gid is not None:
            os.chown(path, -1, gid)
            os.chmod(path, 0o660)
        sock.listen(_BACKLOG)
    except OSError as err:
        sock.close()
        raise CannotListen(f"cannot listen on {path}: {err.strerror or err}") from err
    finally:
        os.umask(before)
    return sock


def is_socket(path: str) -> bool:
    """Whether `path` is a socket, which a dead daemon left there. Any other file must not be removed."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def listener_at(path: str) -> int | None:
    """Return the pid of the process that listens on a Unix socket, 0 if it does not show; None if none listens.

    A dead daemon's socket refuses connections.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        try:
            sock.connect(path)
        except BlockingIOError:  # EAGAIN: the backlog is full
            return 0
        except OSError:  # ECONNREFUSED, ENOENT; bind(2) reports any other kind of file
            return None
        return peer(sock)[0]


def inherited(fds: list[int]) -> list[socket.socket]:
    """Return the listeners of inherited descriptors. They are already bound, and their addresses are published."""
    return [socket.socket(fileno=fd) for fd in fds]


def listen_again(settings: DaemonSettings, listeners: list[socket.socket]) -> None:
    """Replace each Unix socket whose file was removed, and publish all addresses again.

    Args:
        settings: The settings.
        listeners: All listeners. New sockets replace the old ones in this list.

    Raises:
        CannotListen: an address is in use, cannot be bound, or cannot be published.
    """
    for index, sock in enumerate(listeners):
        path = sock.getsockname() if sock.family == socket.AF_UNIX else ""
        if path and not is_socket(path):
            listeners[index] = _unix(path, settings.socket_gid)
            sock.close()
    _publish(settings, [list(sock.getsockname()[:2]) for sock in listeners if sock.family != socket.AF_UNIX])


def listen(settings: DaemonSettings) -> list[socket.socket]:
    """Bind all listeners, the Unix sockets last, and publish the actual addresses in ``listening.json``.

    Also removes the ring of the previous daemon's log, and marks the daemon as starting.

    Raises:
        CannotListen: an address is in use, cannot be bound, or cannot be published.
    """
    umask = os.umask(0o077)
    try:
        listeners = _bind(settings)
    finally:
        os.umask(umask)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ring_path(settings.runtime_dir, DAEMON_RING))
    with contextlib.suppress(OSError):  # ENOSPC: clients hear of a scheduler that does not answer instead
        os.close(os.open(settings.starting, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return listeners


def _bind(settings: DaemonSettings) -> list[socket.socket]:
    with contextlib.ExitStack() as bound:
        listeners = [bound.enter_context(bind_tcp(host, port)) for host, port in settings.listen]
        addresses = [list(sock.getsockname()[:2]) for sock in listeners]
        paths = [path for path in (settings.http_socket, settings.proxy_socket) if path]
        listeners += [bound.enter_context(_unix(path, settings.socket_gid)) for path in paths]
        _publish(settings, addresses)
        bound.pop_all()
    return listeners


def _publish(settings: DaemonSettings, addresses: list[list[str | int]]) -> None:
    path = f"{settings.runtime_dir}/listening.json"
    try:
        replace_file(path, json.dumps({"http": addresses, "socket": settings.http_socket}))
    except OSError as err:  # ENOSPC: the tmpfs is full
        raise CannotListen(f"{path} cannot be written: {err.strerror}") from err
