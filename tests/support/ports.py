"""Ports of loopback for tests: where something is to listen later, or nothing at all."""

import socket
from collections import deque

_RESERVED: deque[socket.socket] = deque(maxlen=64)
"""Bound, but not listening: who asks for any port is not given these, and who connects to one is refused.

Who binds to one by its number gets it, if that one sets SO_REUSEADDR too, as servers do.
"""


def free_port() -> int:
    """A port that nobody has; for the next tests of this process it stays so."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    if len(_RESERVED) == _RESERVED.maxlen:
        _RESERVED.popleft().close()
    _RESERVED.append(sock)
    port: int = sock.getsockname()[1]
    return port
