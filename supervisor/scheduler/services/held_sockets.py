"""The listening sockets of services: bound before a service starts, and passed to the root, which holds them.

They are bound in a thread, because name services and network file systems may never answer. A socket is closed when no
instance of its service runs or is about to start, so that clients are refused instead of waiting in vain.
"""

import json
import os
import socket
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from hashlib import blake2b

from supervisor.config.value_records import HeldSocket
from supervisor.host.detached_thread import DetachedThread
from supervisor.host.files import exposed
from supervisor.host.procfs import find_process
from supervisor.host.shortage import reason_of
from supervisor.host.unix_accounts import NoSuchAccount, group_id, user_id
from supervisor.ipc.listening_sockets import CannotListen, bind_tcp, is_socket, listener_at
from supervisor.ipc.messages import HOLDS_SOCKETS
from supervisor.scheduler.core import Core
from supervisor.scheduler.loop.procedures import Procedure, Waiter
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.services.instance_transitions import State

_BACKLOG = 4096
_AGAIN_MS = 500
"""The pause before an address that could not be bound is tried again."""
_AT_REST = frozenset({State.STOPPED, State.EXITED, State.FATAL})

Bound = list[socket.socket | str]
"""A socket, or the reason why it could not be bound."""


class HeldSockets:
    """The sockets that the root holds.

    Args:
        on_bound: called when a service may start, or when the reason why it waits has changed.
    """

    def __init__(self, core: Core, root: RootConnection, on_bound: Callable[[Unit], None]) -> None:
        self._loop = core.loop
        self._procedures = core.procedures
        self._root = root
        self._on_bound = on_bound
        self._held: dict[str, dict[str, str]] = {}
        """The identity of each socket, by service and name."""
        self._waiting: dict[Unit, str] = {}
        """Why services wait for sockets that are being bound."""

    def know(self, listed: Iterable[Collection[str]]) -> None:
        """Set the sockets that the root holds: service, name and identity of each."""
        for service, name, identity in listed:
            self._held.setdefault(service, {})[name] = identity

    def settle(self, units: Mapping[str, Unit]) -> None:
        """Close the sockets that no service needs any more, after the takeover."""
        for service in list(self._held):
            if service in units:
                self.drop_changed(units[service])
                self.close_unneeded(units[service])
            else:
                self.close(service)

    def lacks(self, unit: Unit) -> bool:
        """Return whether the root does not hold all sockets of a service."""
        return bool(self._unheld(unit))

    def missing(self, unit: Unit) -> str | None:
        """Return why a service must wait for its sockets, and begin to bind them; None: the root holds all of them."""
        if not self._unheld(unit):
            return None
        if unit not in self._waiting:
            self._waiting[unit] = "waits for its sockets to be bound"
            self._procedures.start(self._bind(unit))
        return self._waiting[unit]

    def _unheld(self, unit: Unit) -> list[HeldSocket]:
        if unit.service is None or self._root.protocol < HOLDS_SOCKETS:  # such a root refuses the run with the reason
            return []
        held = self._held.get(unit.name, {})
        return [wanted for wanted in unit.service.sockets if held.get(wanted.name) != _identity(wanted)]

    def _bind(self, unit: Unit) -> Procedure[None]:
        try:
            while unheld := self._unheld(unit):
                bound: Bound = yield partial(self._in_thread, unheld)
                if not any(instance.state is State.HELD for instance in unit.instances):
                    _close(bound)
                    return
                reasons = [self._take(unit, *pair) for pair in zip(unheld, bound, strict=True)]
                reason = next(filter(None, reasons), None)
                if reason is not None:
                    self._waiting[unit] = f"waits for its sockets: {reason}"
                    self._on_bound(unit)
                    yield self._loop.pause(_AGAIN_MS)
        finally:
            del self._waiting[unit]
        self._on_bound(unit)

    def _in_thread(self, unheld: list[HeldSocket], waiter: Waiter) -> None:
        try:
            DetachedThread(partial(self._bind_all, unheld, waiter))
        except RuntimeError:  # pthread_create(3) failed, EAGAIN: too many threads
            waiter.resume(["the limit of threads is reached"] * len(unheld))

    def _bind_all(self, unheld: list[HeldSocket], waiter: Waiter) -> None:
        bound = [_bound(wanted) for wanted in unheld]
        self._loop.call_from_thread(partial(waiter.resume, bound))

    def _take(self, unit: Unit, wanted: HeldSocket, bound: socket.socket | str) -> str | None:
        """Pass a socket to the root; return the reason if it was not bound."""
        if isinstance(bound, str):
            return bound
        if unit.service is None or wanted not in unit.service.sockets:  # a reload has changed it
            bound.close()
            return None
        identity = _identity(wanted)
        self._held.setdefault(unit.name, {})[wanted.name] = identity
        self._root.send({"op": "hold", "service": unit.name, "name": wanted.name, "identity": identity}, bound)
        return None

    def drop_changed(self, unit: Unit) -> None:
        """Close the sockets that the definition of a service no longer has."""
        sockets = () if unit.service is None else unit.service.sockets
        wanted = {each.name: _identity(each) for each in sockets}
        for name, identity in list(self._held.get(unit.name, {}).items()):
            if wanted.get(name) != identity:
                self._release(unit.name, name)

    def close_unneeded(self, unit: Unit) -> None:
        """Close the sockets of a service none of whose instances runs or is about to start."""
        if unit.name in self._held and all(instance.state in _AT_REST for instance in unit.instances):
            self.close(unit.name)

    def close(self, service: str) -> None:
        """Close all sockets of a service."""
        for name in list(self._held.get(service, ())):
            self._release(service, name)
        self._held.pop(service, None)

    def _release(self, service: str, name: str) -> None:
        del self._held[service][name]
        self._root.send({"op": "release", "service": service, "name": name})


def _identity(held: HeldSocket) -> str:
    """Return a digest of the configuration of a socket."""
    text = json.dumps([held.address, held.mode, held.user, held.group])
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _close(bound: Bound) -> None:
    for each in bound:
        if isinstance(each, socket.socket):
            each.close()


def _bound(held: HeldSocket) -> socket.socket | str:
    endpoint = held.endpoint
    try:
        return _unix(held, endpoint) if isinstance(endpoint, str) else bind_tcp(*endpoint, _BACKLOG)
    except (CannotListen, NoSuchAccount) as err:
        return str(err)
    except (OSError, MemoryError) as err:  # EACCES, ENOENT, EADDRINUSE: another kind of file
        return f"cannot listen on {held.address}: {reason_of(err)}"


def _unix(held: HeldSocket, path: str) -> socket.socket:
    pid = listener_at(path)
    if pid is not None:
        raise CannotListen(f"cannot listen on {path}: {find_process(pid) or 'another program'} listens there")
    uid = -1 if held.user is None else user_id(held.user)
    gid = -1 if held.group is None else group_id(held.group)
    directory = os.path.dirname(path)
    if (uid, gid) != (-1, -1) and (other := exposed(directory, {0, os.geteuid()})) is not None:
        raise CannotListen(f"cannot give {path} another owner: other users can change {other}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if is_socket(path):
            os.unlink(path)
        os.fchmod(sock.fileno(), held.mode)  # bind(2) then creates a file with this mode, without the umask's bits
        sock.bind(path)
        _set_access(path, held.mode, uid, gid)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _set_access(path: str, mode: int, uid: int, gid: int) -> None:
    """Set owner and mode of a socket through a descriptor, so that nobody can put another file in its place."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
            raise CannotListen(f"cannot listen on {path}: it was replaced")
        os.chown(f"/proc/self/fd/{fd}", uid, gid)
        os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)
