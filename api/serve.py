"""The API server, started by the root process as ``python -I -m api.serve --fd N``.

Descriptor N is a socket to the root. It delivers the ``hello`` message with the settings and the listeners. If the
socket closes, the root is gone, and the server exits at once, because the next root needs the addresses. ``ringward
up`` starts the server before the settings are known, and may still fail.

This module does only what must precede all other imports; :mod:`api.server.arbiter` is the rest of the server.
"""

import contextlib
import gc
import importlib
import os
import sys


def _close_above(fd: int) -> None:
    """Close all higher descriptors, which the caller of ``ringward up`` may have left open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > fd:
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the directory listing itself
                os.close(int(name))


def _check() -> None:
    """Import everything that the arbiter and the workers need; an import error ends the process."""
    os.chdir("/")
    importlib.import_module("api.server.arbiter")
    importlib.import_module("api.server.worker")


def main() -> None:
    """Run the server until it is stopped; with ``--check``, only import it."""
    if sys.argv[1:] == ["--check"]:
        _check()
        return
    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    gc.disable()  # until all is imported; these objects stay
    _close_above(fd)
    os.chdir("/")  # gunicorn does not start in a removed directory
    from api.server.arbiter import run

    run(fd)


if __name__ == "__main__":
    main()
