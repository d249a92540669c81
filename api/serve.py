"""The API server, started by the root process as ``python -I -m ringward api --fd N``.

Descriptor N is a socket to the root. It delivers the ``hello`` message with the settings and the listeners. If the
socket closes, the root has died, and the server exits at once, because the next root needs the addresses. ``ringward
up`` starts the server before the settings are known, and may fail before it sends them.

This module only does what must precede all other imports; :mod:`api.server.arbiter` is the rest of the server.
"""

import contextlib
import gc
import os
import sys


def _close_above(fd: int) -> None:
    """Close all descriptors above `fd`, which the caller of ``ringward up`` may have left open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > fd:
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the directory listing itself
                os.close(int(name))


def prepare() -> int:
    """Do what must precede the import of gevent, which opens descriptors.

    Returns:
        The descriptor of the socket to the root, or -1 with ``--check``.
    """
    gc.disable()  # until everything is imported: these objects stay alive anyway
    os.chdir("/")  # gunicorn does not start in a directory that was removed
    if sys.argv[1:] == ["--check"]:
        return -1
    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    _close_above(fd)
    return fd


def main() -> None:
    """Run the server until it stops; with ``--check``, do nothing after the import."""
    fd = prepare()
    from api.server.arbiter import run

    if fd >= 0:
        run(fd)


if __name__ == "__main__":
    main()
