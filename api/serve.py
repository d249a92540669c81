"""The API server, started by the root process as ``python -I -m ringward api --fd N``.

Descriptor N is a socket to the root. It delivers the ``hello`` message with the settings and the listeners. If the
socket closes, the root is gone, and the server exits at once, because the next root needs the addresses. ``ringward
up`` starts the server before the settings are known, and may still fail.

This module does only what must precede all other imports; :mod:`api.server.arbiter` is the rest of the server.
"""

import contextlib
import gc
import os
import sys


def _close_above(fd: int) -> None:
    """Close all higher descriptors, which the caller of ``ringward up`` may have left open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > fd:
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the directory listing itself
                os.close(int(name))


def prepare() -> int:
    """Do what must precede the import of gevent, which opens descriptors.

    Returns:
        The descriptor of the socket to the root, or -1 with ``--check``.
    """
    gc.disable()  # until all is imported; these objects stay
    os.chdir("/")  # gunicorn does not start in a removed directory
    if sys.argv[1:] == ["--check"]:
        return -1
    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    _close_above(fd)
    return fd


def main() -> None:
    """Run the server until it is stopped; with ``--check``, only import it."""
    fd = prepare()
    from api.server.arbiter import run

    if fd >= 0:
        run(fd)


if __name__ == "__main__":
    main()
