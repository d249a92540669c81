"""Listening sockets of services, which the scheduler has bound. The root only holds them and passes them on.

While a service restarts, its clients wait in the backlog. The sockets outlive the scheduler, an upgrade, and with a
descriptor store also the root.
"""

import os
from collections.abc import Callable, Iterable

from supervisor.root.handover.fd_store import DescriptorStore
from supervisor.root.handover.state_schema import HeldSocketState

_STORED = "socket"
"""Begins the name of a socket in the descriptor store, where the others are ids of runs."""


class SocketHolder:
    """Holds the sockets by service and name. Belongs to the control thread."""

    def __init__(self, store: DescriptorStore) -> None:
        self._store = store
        self._held: dict[tuple[str, str], HeldSocketState] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, held: HeldSocketState) -> None:
        """Hold a socket instead of the one that its service has under this name."""
        self.release(held.service, held.name)
        self._held[held.service, held.name] = held
        self._store.keep(_stored_name(held), [held.fd])

    def release(self, service: str, name: str) -> None:
        """Close a socket. An unknown one is ignored, because the scheduler may repeat a message."""
        held = self._held.pop((service, name), None)
        if held is not None:
            os.close(held.fd)
            self._store.forget(_stored_name(held))

    def close(self) -> None:
        """Close all sockets."""
        for service, name in list(self._held):
            self.release(service, name)

    def of(self, service: str, names: Iterable[str]) -> list[int]:
        """Return the descriptors of a service's sockets.

        Raises:
            ValueError: one of them is not held.
        """
        missing = [name for name in names if (service, name) not in self._held]
        if missing:
            raise ValueError(f"its socket {missing[0]} is not held")
        return [self._held[service, name].fd for name in names]

    def listed(self) -> list[list[str]]:
        """Return service, name and identity of each socket, for the snapshot."""
        return [[held.service, held.name, held.identity] for held in self._held.values()]

    def dump(self, keep: Callable[[int], int]) -> list[HeldSocketState]:
        """Return all sockets for the next root; `keep` registers a descriptor that it needs."""
        return [held._replace(fd=keep(held.fd)) for held in self._held.values()]

    def load(self, states: Iterable[HeldSocketState]) -> None:
        """Restore the state from :meth:`dump`."""
        self._held = {(held.service, held.name): held for held in states}

    def adopt(self, stored: dict[str, list[int]]) -> dict[str, list[int]]:
        """Take the sockets of a killed root from its stored descriptors; return the others."""
        others = {}
        for stored_name, fds in stored.items():
            kind, *words = stored_name.split("/")
            if kind == _STORED and len(words) == 3 and len(fds) == 1:
                service, name, identity = words
                self._held[service, name] = HeldSocketState(service, name, identity, fds[0])
            else:
                others[stored_name] = fds
        return others


def _stored_name(held: HeldSocketState) -> str:
    return "/".join((_STORED, held.service, held.name, held.identity))
