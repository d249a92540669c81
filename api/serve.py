"""The API server, started by the root process as ``python -I -m api.serve --fd N``.

On descriptor N comes the ``hello`` frame with the settings, and with its first byte the listeners; when that socket
closes, the root is gone, and so are we, at once: the next root wants the addresses. ``ringward up`` starts us before it
has anything to say; it may still find out that it cannot go on.

Here is only what has to come before everything else is loaded; :mod:`api.server.arbiter` is what it becomes.
"""

import contextlib
import gc
import importlib
import os
import sys


def _close_above(fd: int) -> None:
    """What whoever started ``ringward up`` has given to it is not for us."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > fd:
            with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing itself
                os.close(int(name))


def _check() -> None:
    """Load all that arbiter and workers need; an error that this raises ends the process."""
    os.chdir("/")
    importlib.import_module("api.server.arbiter")
    importlib.import_module("api.server.worker")


def main() -> None:
    """Run the server until it is stopped; with ``--check``, only load it."""
    if sys.argv[1:] == ["--check"]:
        _check()
        return
    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    gc.disable()  # until all is loaded, which stays
    _close_above(fd)
    os.chdir("/")  # gunicorn does not start where the daemon's directory has been removed meanwhile
    from api.server.arbiter import run

    run(fd)


if __name__ == "__main__":
    main()
