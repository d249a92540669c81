"""The API server, started by the root process as ``python -I -m api.serve --fd N``.

LISTEN_FDS is in the environment (sd_listen_fds(3): descriptors from 3 on). On descriptor N comes the ``hello`` frame
with the settings; when that socket closes, the root is gone, and so are we, at once: the next root wants the addresses.

Here is only what has to come before everything else is loaded; :mod:`api.arbiter` is what it becomes.
"""

import gc
import os
import sys
from typing import Any

from supervisor.later import import_later, unused

HARDLY_USED: dict[str, dict[str, Any]] = {
    "asyncio": {"Runner": unused, "create_task": unused, "get_running_loop": unused},
    "html": {},
    "http.cookiejar": {"Cookie": object},
    "importlib.metadata": {},
    "logging.handlers": {},
    "platform": {"system": lambda: os.uname().sysname, "uname": os.uname},
    "xml.etree.ElementTree": {},
}
"""What gunicorn and Falcon import for cases that we do not have; and what they take from it at once, for the same."""


def postpone() -> None:
    """Have what is hardly used loaded by who uses it."""
    for name, taken in HARDLY_USED.items():
        import_later(name, **taken)


def main() -> None:
    """Run the server until it is told to end."""
    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    gc.disable()  # until all is loaded, which stays
    os.chdir("/")  # gunicorn does not start where the daemon's directory has been removed meanwhile
    postpone()
    from api.arbiter import run

    run(fd)


if __name__ == "__main__":
    main()
