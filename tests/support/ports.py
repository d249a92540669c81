"""Loopback ports for tests: for servers that start later, or for nothing at all."""

import socket
from collections import deque

_RESERVED: deque[socket.socket] = deque(maxlen=64)
"""Bound sockets that do not listen: the kernel gives these ports to no other socket and refuses connections to them.

A server that binds to such a port by number gets it if it also sets SO_REUSEADDR.
"""


def free_port() -> int:
    """Return a free port, which stays reserved during the next tests of this process."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    if len(_RESERVED) == _RESERVED.maxlen:
        _RESERVED.popleft().close()
    _RESERVED.append(sock)
    port: int = sock.getsockname()[1]
    return port
